#include "storage/memory_cache.h"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace trainopt {
namespace {

class KeptFile : public DataFile {
 public:
  KeptFile(std::unique_ptr<const DataFile> far, std::shared_ptr<MemoryCache::State> state)
      : DataFile(far->name(), far->size(), far->version()), far_(std::move(far)), state_(std::move(state)) {}
  ~KeptFile() override {
    for (const auto& [range, bytes] : kept_) state_->used -= range.second;
  }

  std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const override {
    if (const auto* found = find(offset, bytes)) {
      state_->hit_bytes += bytes;
      return *found;
    }
    state_->missed_bytes += bytes;
    const auto fetched = far_->read(offset, bytes, scratch);
    if (state_->used.fetch_add(bytes) + bytes > state_->size) {
      state_->used -= bytes;
      return fetched;
    }
    const std::unique_lock lock(mutex_);
    const auto [place, is_new] = kept_.try_emplace({offset, bytes}, fetched.begin(), fetched.end());
    if (!is_new) state_->used -= bytes;  // another thread read it too
    return place->second;
  }
  std::span<const uint8_t> read_once(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const override {
    return far_->read_once(offset, bytes, scratch);
  }
  void expect(int64_t offset, int64_t bytes) const override {
    if (!find(offset, bytes)) far_->expect(offset, bytes);
  }
  int64_t reads_ahead() const override { return far_->reads_ahead(); }

 private:
  const std::vector<uint8_t>* find(int64_t offset, int64_t bytes) const {
    const std::shared_lock lock(mutex_);
    const auto found = kept_.find({offset, bytes});
    return found == kept_.end() ? nullptr : &found->second;
  }

  std::unique_ptr<const DataFile> far_;
  std::shared_ptr<MemoryCache::State> state_;
  mutable std::shared_mutex mutex_;
  /// By offset and length. Elements of a map stay where they are.
  mutable std::map<std::pair<int64_t, int64_t>, std::vector<uint8_t>> kept_;
};

}  // namespace

MemoryCache::MemoryCache(int64_t size) : state_(std::make_shared<State>(size)) {}

std::unique_ptr<const DataFile> MemoryCache::through(std::unique_ptr<const DataFile> far) {
  return std::make_unique<KeptFile>(std::move(far), state_);
}

int64_t MemoryCache::hit_bytes() const { return state_->hit_bytes; }
int64_t MemoryCache::missed_bytes() const { return state_->missed_bytes; }

}  // namespace trainopt
