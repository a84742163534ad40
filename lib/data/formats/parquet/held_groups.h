// The row groups in memory: the first thread that needs a row of a group reads it, and it is let go when all of its
// rows were used.
#pragma once

#include "data/formats/parquet/parquet_file.h"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace trainopt {

/// Safe to use from many threads.
class HeldGroups {
 public:
  using Read = std::function<std::shared_ptr<const RowGroup>()>;

  /// Beyond `most_bytes` the group that was not used for longest is let go, and so is a group that was not used for
  /// `stale_after` uses of others: its other rows are not needed here. `keep`: only the limit counts.
  HeldGroups(int64_t most_bytes, int64_t stale_after, bool keep)
      : most_bytes_(most_bytes), stale_after_(stale_after), keep_(keep) {}

  /// The group, for the use of one of the `rows` that are used of it; calls `read` if no thread has or is reading it.
  /// Throws what `read` throws: a BadSample each time, without reading again.
  std::shared_ptr<const RowGroup> use(int64_t group, int64_t row, int64_t rows, const Read& read);
  /// Whether it is in memory or being read.
  bool has(int64_t group) const;
  int64_t bytes() const;

 private:
  struct Entry {
    std::shared_ptr<const RowGroup> data;  ///< null while it is read
    std::exception_ptr failure;
    int64_t rows;            ///< that are used in an epoch
    std::vector<bool> used;  ///< rows, since the last of these passes began
    int64_t unused = rows;
    int64_t last_use = 0;
  };
  using Entries = std::map<int64_t, std::shared_ptr<Entry>>;

  void read_into(int64_t group, Entry& entry, const Read& read);
  void drop(Entries::iterator entry);
  void count_use(Entry& entry, int64_t row);
  void drop_stale();
  void drop_beyond_limit(int64_t except);

  int64_t most_bytes_, stale_after_;
  bool keep_;
  mutable std::mutex mutex_;
  std::condition_variable was_read_;
  Entries entries_;
  int64_t bytes_ = 0, uses_ = 0;
};

}  // namespace trainopt
