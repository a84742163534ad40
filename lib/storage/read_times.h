// How long reads from a distant server take, and how many are under way.
#pragma once

#include "base/clock.h"

#include <array>
#include <cstdint>
#include <mutex>

namespace trainopt {

struct ReadSpeed {
  int64_t reads = 0;
  double active_s = 0;   ///< time with at least one read under way
  double reading_s = 0;  ///< sum over the reads
  /// The times of the reads that bring most bytes, which are all about as long: the fastest twentieth, the median and
  /// the slowest hundredth, within 10 %.
  double fast_ms = 0, median_ms = 0, slow_ms = 0;

  /// How many reads are under way at once, on average.
  double under_way() const { return active_s > 0 ? reading_s / active_s : 0; }
};

/// Safe to use from many threads.
class ReadTimes {
 public:
  /// Counts one read while it lives.
  class Read {
   public:
    Read(ReadTimes& times, int64_t bytes) : times_(times), bytes_(bytes), began_(times.begin()) {}
    ~Read() { times_.end(began_, bytes_); }
    Read(const Read&) = delete;
    Read& operator=(const Read&) = delete;

   private:
    ReadTimes& times_;
    int64_t bytes_;
    Clock::time_point began_;
  };

  ReadSpeed speed() const;
  /// Counts one read; public because tests call it.
  void add(double seconds, int64_t bytes);

 private:
  static constexpr int kOfOctave = 8;     ///< bins
  static constexpr double kLeast = 1e-4;  ///< seconds
  static constexpr size_t kSizes = 16;    ///< classes of length, by powers of four

  struct OfSize {
    std::array<int64_t, 25 * kOfOctave> bins{};
    int64_t reads = 0, bytes = 0;
    double percentile_ms(double share) const;
  };

  Clock::time_point begin();
  void end(Clock::time_point began, int64_t bytes);

  mutable std::mutex mutex_;
  std::array<OfSize, kSizes> sizes_{};
  int64_t reads_ = 0, under_way_ = 0;
  double active_s_ = 0, reading_s_ = 0;
  Clock::time_point active_since_;
};

}  // namespace trainopt
