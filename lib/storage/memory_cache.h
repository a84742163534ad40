// Keeps in memory what was read of remote files, as long as it fits: nothing is replaced, because with a new random
// order in every epoch a part that stays has the hit rate of any replacement.
#pragma once

#include "storage/data_file.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace trainopt {

class MemoryCache {
 public:
  /// `size`: bytes of all files together.
  explicit MemoryCache(int64_t size);

  /// `far`, read through the cache. Ranges are found again if they are read with the same offset and length, as samples
  /// are. A span that read() returns for a range that is kept stays valid as long as the file.
  std::unique_ptr<const DataFile> through(std::unique_ptr<const DataFile> far);
  int64_t hit_bytes() const;     ///< read from memory
  int64_t missed_bytes() const;  ///< fetched

  struct State {
    explicit State(int64_t bytes) : size(bytes) {}
    int64_t size;
    std::atomic<int64_t> used{0}, hit_bytes{0}, missed_bytes{0};
  };

 private:
  std::shared_ptr<State> state_;  ///< also held by the files
};

}  // namespace trainopt
