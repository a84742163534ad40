// The memory in which images are decoded. All threads of a loader share it: data.memory_limit, less the loader's batch
// buffers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace trainopt {

/// A thread keeps the buffer for images that take less than this, and gives larger ones back after each image.
inline constexpr int64_t kLargeDecode = int64_t{64} << 20;

/// Safe to use from many threads.
class DecodeMemory {
 public:
  /// Bytes that are given back when it is destroyed. May be empty.
  using Hold = std::shared_ptr<const void>;

  explicit DecodeMemory(int64_t limit) : limit_(limit) {}
  // `memory` may be null: then nothing is counted, and the hold is empty.
  /// Counts bytes that are kept for long, such as batch buffers, whether they fit or not.
  static Hold reserve(const std::shared_ptr<DecodeMemory>& memory, int64_t bytes);
  /// Waits until other images have given back so much that these bytes fit. Throws BadSample if they would not fit
  /// alone.
  static Hold take(const std::shared_ptr<DecodeMemory>& memory, int64_t bytes);

 private:
  struct Bytes;

  int64_t limit_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  int64_t reserved_ = 0, taken_ = 0;  ///< bytes
};

}  // namespace trainopt
