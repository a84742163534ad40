#include "storage/remote_file.h"

#include "base/error.h"

#include <algorithm>
#include <chrono>
#include <exception>

namespace trainopt {
namespace {

/// What was announced so many reads ago was skipped, for example because its batch was never loaded.
constexpr int64_t kSkippedAfter = 1024;

}  // namespace

std::vector<ListedObject> RemoteStore::list(const std::string& bucket, const std::string& prefix) {
  std::vector<ListedObject> objects;
  transfers_
      .start([&](HttpConnection& connection,
                 const WaitOrStop& wait) { objects = client_.list(bucket, prefix, connection, wait); },
             Transfers::Place::next)
      .get();
  return objects;
}

S3Object RemoteStore::open(const std::string& bucket, const std::string& key) {
  S3Object object;
  transfers_
      .start([&](HttpConnection& connection,
                 const WaitOrStop& wait) { object = client_.open(bucket, key, connection, wait); },
             Transfers::Place::next)
      .get();
  return object;
}

void RemoteStore::read(const S3Object& object, int64_t offset, std::span<uint8_t> to) {
  std::vector<std::future<void>> parts;
  std::exception_ptr failure;  // kept until no part writes to `to` any more
  try {
    for (size_t begin = 0; begin < to.size(); begin += static_cast<size_t>(part_size_)) {
      const auto part = to.subspan(begin, std::min(to.size() - begin, static_cast<size_t>(part_size_)));
      const int64_t at = offset + static_cast<int64_t>(begin);
      const auto fetch = [this, &object, at, part](HttpConnection& connection, const WaitOrStop& wait) {
        client_.read(object, at, part, connection, wait);
      };
      parts.push_back(transfers_.start(fetch, Transfers::Place::next));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  for (const auto& part : parts) part.wait();
  if (failure) std::rethrow_exception(failure);
  for (auto& part : parts) part.get();
}

void RemoteStore::announce(const S3Object& object, const Range& range) {
  const int64_t offset = std::get<1>(range), bytes = std::get<2>(range);
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes > part_size_ || ahead_.contains(range)) return;
  if (ahead_bytes_ + bytes > most_ahead_) drop_skipped();
  if (ahead_bytes_ + bytes > most_ahead_) return;
  auto buffer = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(bytes));
  std::future<void> done = transfers_.start(
      [this, object, offset, buffer](HttpConnection& connection, const WaitOrStop& wait) {
        client_.read(object, offset, *buffer, connection, wait);
      },
      Transfers::Place::last);
  ahead_.emplace(range, Ahead{std::move(buffer), std::move(done), reads_});
  ahead_bytes_ += bytes;
}

bool RemoteStore::take(const Range& range, std::vector<uint8_t>& to) {
  std::unique_lock lock(mutex_);
  ++reads_;
  const auto found = ahead_.find(range);
  if (found == ahead_.end()) return false;
  Ahead ahead = std::move(found->second);
  ahead_.erase(found);
  lock.unlock();
  ahead.done.wait();
  lock.lock();
  ahead_bytes_ -= std::get<2>(range);
  lock.unlock();
  ahead.done.get();
  to.swap(*ahead.bytes);
  return true;
}

void RemoteStore::drop_skipped() {
  std::erase_if(ahead_, [&](const auto& each) {
    const bool is_skipped = each.second.read_before + kSkippedAfter < reads_ &&
                            each.second.done.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    if (is_skipped) ahead_bytes_ -= std::get<2>(each.first);
    return is_skipped;
  });
}

void RemoteStore::forget(int64_t file) {
  const std::lock_guard lock(mutex_);
  const auto begin = ahead_.lower_bound({file, 0, 0}), end = ahead_.lower_bound({file + 1, 0, 0});
  for (auto each = begin; each != end; ++each) ahead_bytes_ -= std::get<2>(each->first);
  ahead_.erase(begin, end);
}

namespace {

class RemoteFile : public DataFile {
 public:
  RemoteFile(std::shared_ptr<RemoteStore> store, S3Object object)
      : DataFile(object.name(), object.bytes, object.version + " " + store->endpoint()),
        store_(std::move(store)),
        object_(std::move(object)),
        number_(store_->next_file_number()) {}
  ~RemoteFile() override { store_->forget(number_); }

  std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const override {
    TRAINOPT_CHECK(offset >= 0 && bytes >= 0 && bytes <= size() - offset);
    if (!store_->take({number_, offset, bytes}, scratch)) {
      scratch.resize(static_cast<size_t>(bytes));
      store_->read(object_, offset, scratch);
    }
    return scratch;
  }
  int64_t reads_ahead() const override { return store_->reads_ahead(); }
  void expect(int64_t offset, int64_t bytes) const override {
    try {
      store_->announce(object_, {number_, offset, bytes});
    } catch (const std::exception&) {  // named recovery: read() does it, or says why it cannot
    }
  }

 private:
  std::shared_ptr<RemoteStore> store_;
  S3Object object_;
  int64_t number_;
};

}  // namespace

std::unique_ptr<const DataFile> open_remote_file(std::shared_ptr<RemoteStore> store, const std::string& bucket,
                                                 const std::string& key) {
  S3Object object = store->open(bucket, key);
  return std::make_unique<RemoteFile>(std::move(store), std::move(object));
}

}  // namespace trainopt
