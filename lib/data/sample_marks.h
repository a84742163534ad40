// A bit for each sample, which any thread may set.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace trainopt {

class SampleMarks {
 public:
  SampleMarks() = default;
  explicit SampleMarks(int64_t samples) : words_(static_cast<size_t>((samples + 63) / 64)) {}
  bool has(int64_t sample) const { return (word(sample).load(std::memory_order_relaxed) & bit(sample)) != 0; }
  void add(int64_t sample) { word(sample).fetch_or(bit(sample), std::memory_order_relaxed); }

 private:
  static uint64_t bit(int64_t sample) { return uint64_t{1} << (sample & 63); }
  const std::atomic<uint64_t>& word(int64_t sample) const { return words_[static_cast<size_t>(sample >> 6)]; }
  std::atomic<uint64_t>& word(int64_t sample) { return words_[static_cast<size_t>(sample >> 6)]; }

  std::vector<std::atomic<uint64_t>> words_;
};

}  // namespace trainopt
