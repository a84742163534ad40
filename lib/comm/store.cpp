#include "comm/store.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "comm/c10d_store.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

namespace trainopt {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(10);
using Value = std::vector<uint8_t>;

class SealedStore : public c10d::Store {
 public:
  SealedStore(c10::intrusive_ptr<c10d::Store> store, std::string key, std::shared_ptr<std::atomic<bool>> warned)
      : Store(store->getTimeout()), store_(std::move(store)), key_(std::move(key)), warned_(std::move(warned)) {}

  c10::intrusive_ptr<Store> clone() override {
    return c10::make_intrusive<SealedStore>(store_->clone(), key_, warned_);
  }

  void set(const std::string& name, const Value& value) override {
    Value sealed = value;
    const Sha256 seal = seal_of(name, value.data(), value.size());
    sealed.insert(sealed.end(), seal.begin(), seal.end());
    store_->set(name, sealed);
  }

  Value get(const std::string& name) override {
    wait({name});
    if (auto value = opened(name)) return *value;
    C10_THROW_ERROR(DistStoreError, "the value lost its seal: " + name);  // replaced since wait() looked
  }

  bool check(const std::vector<std::string>& names) override {
    return store_->check(names) &&
           std::all_of(names.begin(), names.end(), [&](const std::string& name) { return opened(name).has_value(); });
  }

  void wait(const std::vector<std::string>& names) override { wait(names, timeout_); }
  void wait(const std::vector<std::string>& names, const std::chrono::milliseconds& timeout) override {
    const auto began = Clock::now();
    store_->wait(names, timeout);
    for (; !check(names); std::this_thread::sleep_for(kRetry))
      if (milliseconds_between(began, Clock::now()) > static_cast<double>(timeout.count()))
        C10_THROW_ERROR(DistStoreError, "no rank of this job wrote " + names.front());
  }

  int64_t add(const std::string& name, int64_t value) override { return store_->add(name, value); }
  bool deleteKey(const std::string& name) override { return store_->deleteKey(name); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  bool hasExtendedApi() const override { return false; }
  void setTimeout(const std::chrono::milliseconds& timeout) override {
    Store::setTimeout(timeout);
    store_->setTimeout(timeout);
  }

 private:
  /// The name's length separates it from the value.
  Sha256 seal_of(const std::string& name, const uint8_t* value, size_t bytes) const {
    std::string text = std::to_string(name.size()) + ":" + name;
    text.append(reinterpret_cast<const char*>(value), bytes);
    return hmac_sha256(key_, text);
  }

  /// The value without its seal; nullopt if the seal is not this job's. The value must exist.
  std::optional<Value> opened(const std::string& name) {
    Value value = store_->get(name);
    const size_t bytes = value.size() - std::min(value.size(), Sha256{}.size());
    const std::string_view seal(reinterpret_cast<const char*>(value.data()) + bytes, value.size() - bytes);
    if (equal_in_constant_time(seal, text_of(seal_of(name, value.data(), bytes)))) {
      value.resize(bytes);
      return value;
    }
    if (!warned_->exchange(true))
      log_warning("somebody without the job's key wrote to the ranks' store; such values are ignored; the first is {}",
                  name);
    return std::nullopt;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  const std::string key_;
  const std::shared_ptr<std::atomic<bool>> warned_;  ///< shared by clones
};

}  // namespace

c10::intrusive_ptr<c10d::Store> sealed_store(c10::intrusive_ptr<c10d::Store> store, std::string key) {
  return c10::make_intrusive<SealedStore>(std::move(store), std::move(key), std::make_shared<std::atomic<bool>>(false));
}

}  // namespace trainopt
