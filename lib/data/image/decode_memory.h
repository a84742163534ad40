// The memory in which images are decoded. Training and evaluation data and all their threads share it:
// data.memory_limit, less the loaders' batch buffers.
#pragma once

#include <atomic>
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
  /// Waits until these bytes fit beside what is reserved and taken, or no other image is being decoded: one at a time
  /// always is. Throws BadSample for more bytes than the limit.
  static Hold take(const std::shared_ptr<DecodeMemory>& memory, int64_t bytes);
  /// True once: for a warning that is given once.
  bool is_first_very_large();

 private:
  struct Bytes;

  int64_t limit_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  int64_t reserved_ = 0, taken_ = 0;  ///< bytes
  std::atomic<bool> has_very_large_{false};
};

}  // namespace trainopt
