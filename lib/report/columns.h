// A series of any length in bounded memory: what is drawn in one pixel column is the least, the greatest and the mean
// of the values that fall into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainopt::report {

/// The values in [first, last] of the horizontal axis.
struct Column {
  double first = 0, last = 0;
  double low = 0, high = 0, sum = 0;
  int64_t count = 0;

  double mean() const { return sum / static_cast<double>(count); }
  void add(const Column& later);
};

/// Values are added in the order of x. When there are more than `limit` columns, neighbours are merged in pairs, so a
/// column covers a power of two of added values. Non-finite values are not drawn: they are only counted.
class Columns {
 public:
  explicit Columns(size_t limit = 1024) : limit_(limit) {}  ///< limit: at least 1

  void add(double x, double value);
  /// The last may cover fewer values than the others.
  std::vector<Column> columns() const;
  bool empty() const { return columns_.empty() && open_.count == 0; }
  int64_t count() const { return count_; }  ///< finite values
  int64_t not_finite() const { return not_finite_; }

 private:
  size_t limit_;
  int64_t width_ = 1;  ///< values per complete column
  std::vector<Column> columns_;
  Column open_;
  int64_t count_ = 0, not_finite_ = 0;
};

/// At most `limit` columns (at least 1) of equally many neighbours each.
std::vector<Column> merged(const std::vector<Column>& columns, size_t limit);

}  // namespace trainopt::report
