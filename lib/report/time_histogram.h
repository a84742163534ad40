// The distribution of positive values, counted in ranges of equal ratio: any number of values in bounded memory.
#pragma once

#include "report/charts.h"

#include <cstdint>
#include <vector>

namespace trainopt::report {

class TimeHistogram {
 public:
  /// Values outside [kLeast, kGreatest) and values that are not finite are only counted.
  static constexpr double kLeast = 1e-3, kGreatest = 1e7;
  static constexpr int64_t kPerDecade = 2000;  ///< a range is 0.12 % wide

  void add(double value);
  int64_t count() const { return count_; }
  int64_t outside() const { return outside_; }
  /// At most `bins` bins of equal width from the first value to the 99.9th percentile; the values above are `beyond`.
  struct Drawn {
    std::vector<Histogram::Bin> bins;
    int64_t beyond = 0;
  };
  Drawn drawn(size_t bins) const;

 private:
  static constexpr size_t kRanges = 10 * kPerDecade;
  std::vector<int64_t> counts_ = std::vector<int64_t>(kRanges);
  int64_t count_ = 0, outside_ = 0;
};

}  // namespace trainopt::report
