#include "report/columns.h"

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

/// A greater value is damage, and differences of such values overflow.
constexpr double kLargestRecorded = 1e300;

}  // namespace

void Column::add(const Column& later) {
  if (later.count == 0) return;
  if (count == 0) {
    *this = later;
    return;
  }
  last = later.last;
  low = std::min(low, later.low);
  high = std::max(high, later.high);
  sum += later.sum;
  count += later.count;
}

void Columns::add(double x, double value) {
  if (!(std::abs(value) < kLargestRecorded && std::abs(x) < kLargestRecorded)) {
    ++not_finite_;
    return;
  }
  ++count_;
  if (open_.count == 0 && columns_.size() >= limit_) {
    const size_t pairs = columns_.size() / 2;
    for (size_t i = 0; i < pairs; ++i) {
      Column merged = columns_[2 * i];
      merged.add(columns_[2 * i + 1]);
      columns_[i] = merged;
    }
    if (columns_.size() % 2 == 1) open_ = columns_.back();
    columns_.resize(pairs);
    width_ *= 2;
  }
  open_.add({.first = x, .last = x, .low = value, .high = value, .sum = value, .count = 1});
  if (open_.count < width_) return;
  columns_.push_back(open_);
  open_ = {};
}

std::vector<Column> Columns::columns() const {
  std::vector<Column> all = columns_;
  if (open_.count > 0) all.push_back(open_);
  return all;
}

std::vector<Column> merged(const std::vector<Column>& columns, size_t limit) {
  const size_t group = (columns.size() + limit - 1) / limit;
  if (group <= 1) return columns;
  std::vector<Column> out;
  out.reserve(limit);
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i % group == 0)
      out.push_back(columns[i]);
    else
      out.back().add(columns[i]);
  }
  return out;
}

}  // namespace trainopt::report
