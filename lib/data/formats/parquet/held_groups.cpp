#include "data/formats/parquet/held_groups.h"

#include <iterator>

namespace trainopt {

std::shared_ptr<const RowGroup> HeldGroups::use(int64_t group, int64_t row, int64_t rows, const Read& read) {
  std::unique_lock lock(mutex_);
  auto& place = entries_[group];
  const bool is_first = !place;
  if (is_first) place = std::make_shared<Entry>(Entry{.rows = rows});
  const std::shared_ptr<Entry> entry = place;
  if (is_first) {
    lock.unlock();
    read_into(group, *entry, read);
    lock.lock();
  }
  was_read_.wait(lock, [&] { return entry->data || entry->failure; });
  if (entry->failure) std::rethrow_exception(entry->failure);
  const auto data = entry->data;
  count_use(*entry, row);
  const auto found = entries_.find(group);
  if (entry->unused == 0 && !keep_ && found != entries_.end() && found->second == entry) drop(found);
  return data;
}

/// A row that is used again belongs to another epoch, in which all rows are used once more.
void HeldGroups::count_use(Entry& entry, int64_t row) {
  entry.last_use = ++uses_;
  auto used = entry.used.begin() + row;
  if (*used) {
    entry.used.assign(entry.used.size(), false);
    entry.unused = entry.rows;
    used = entry.used.begin() + row;
  }
  *used = true;
  --entry.unused;
}

/// Reads the group without holding the lock, then enters it.
void HeldGroups::read_into(int64_t group, Entry& entry, const Read& read) {
  std::shared_ptr<const RowGroup> data;
  std::exception_ptr failure;
  bool is_damaged = false;
  try {
    data = read();
  } catch (const BadSample&) {
    failure = std::current_exception();
    is_damaged = true;
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    entry.data = data;
    entry.failure = failure;
    if (failure && !is_damaged) entries_.erase(group);
    if (data) {
      entry.used.resize(static_cast<size_t>(data->rows()));
      entry.last_use = ++uses_;
      bytes_ += data->bytes();
      if (!keep_) drop_stale();
      drop_beyond_limit(group);
    }
  }
  was_read_.notify_all();
}

void HeldGroups::drop(Entries::iterator entry) {
  bytes_ -= entry->second->data->bytes();
  entries_.erase(entry);
}

void HeldGroups::drop_stale() {
  for (auto each = entries_.begin(); each != entries_.end();) {
    const auto next = std::next(each);
    if (each->second->data && each->second->last_use + stale_after_ < uses_) drop(each);
    each = next;
  }
}

void HeldGroups::drop_beyond_limit(int64_t except) {
  while (bytes_ > most_bytes_) {
    auto oldest = entries_.end();
    for (auto each = entries_.begin(); each != entries_.end(); ++each)
      if (each->first != except && each->second->data &&
          (oldest == entries_.end() || each->second->last_use < oldest->second->last_use))
        oldest = each;
    if (oldest == entries_.end()) return;
    drop(oldest);
  }
}

bool HeldGroups::has(int64_t group) const {
  const std::lock_guard lock(mutex_);
  return entries_.contains(group);
}

int64_t HeldGroups::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace trainopt
