#include "report/columns.h"

#include "support/catch.h"

#include <cmath>
#include <limits>

namespace trainopt::report {
namespace {

/// All values are kept; the width is found by trying.
std::vector<Column> plain_columns(const std::vector<double>& values, size_t limit) {
  size_t width = 1;
  while ((values.size() + width - 1) / width > limit) width *= 2;
  std::vector<Column> out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % width == 0) out.emplace_back();
    const double x = 3 * static_cast<double>(i);
    out.back().add({.first = x, .last = x, .low = values[i], .high = values[i], .sum = values[i], .count = 1});
  }
  return out;
}

double value(size_t i) { return static_cast<double>(i * 7919 % 1000) - 300; }

}  // namespace

TEST_CASE("columns are those of all values", "[report]") {
  for (const size_t limit : {1, 2, 3, 7, 64})
    for (const size_t count : {0, 1, 2, 3, 6, 7, 8, 13, 64, 65, 127, 128, 129, 1000}) {
      std::vector<double> values;
      Columns columns(limit);
      for (size_t i = 0; i < count; ++i) {
        values.push_back(value(i));
        columns.add(3 * static_cast<double>(i), value(i));
        if (i % 5 == 0) columns.add(3 * static_cast<double>(i), std::nan(""));
      }
      const auto drawn = columns.columns(), expected = plain_columns(values, limit);
      INFO(limit << " columns of " << count);
      CHECK(columns.empty() == (count == 0));
      CHECK(columns.count() == static_cast<int64_t>(count));
      CHECK(columns.not_finite() == static_cast<int64_t>((count + 4) / 5));
      REQUIRE(drawn.size() == expected.size());
      for (size_t i = 0; i < drawn.size(); ++i) {
        CHECK(drawn[i].first == expected[i].first);
        CHECK(drawn[i].last == expected[i].last);
        CHECK(drawn[i].low == expected[i].low);
        CHECK(drawn[i].high == expected[i].high);
        CHECK(drawn[i].sum == expected[i].sum);  // of whole numbers, so in any order
        CHECK(drawn[i].count == expected[i].count);
      }
    }
}

TEST_CASE("a million values stay within the limit", "[report]") {
  Columns columns;
  for (size_t i = 0; i < 1000000; ++i) columns.add(static_cast<double>(i), value(i));
  columns.add(1e6, std::numeric_limits<double>::infinity());
  const auto drawn = columns.columns();
  CHECK(drawn.size() <= 1024);
  CHECK(drawn.size() > 512);
  CHECK(columns.not_finite() == 1);
  int64_t count = 0;
  for (const auto& column : drawn) count += column.count;
  CHECK(count == 1000000);
  CHECK(drawn.front().first == 0);
  CHECK(drawn.back().last == 999999);
}

TEST_CASE("merged columns contain the same values", "[report]") {
  Columns columns;
  for (size_t i = 0; i < 1000; ++i) columns.add(static_cast<double>(i), value(i));
  const auto few = merged(columns.columns(), 128);
  CHECK(few.size() == 125);
  Column all, same;
  for (const auto& column : columns.columns()) all.add(column);
  for (const auto& column : few) same.add(column);
  CHECK(same.count == all.count);
  CHECK(same.sum == all.sum);
  CHECK(same.low == all.low);
  CHECK(same.last == all.last);
  CHECK(merged({}, 5).empty());
}

}  // namespace trainopt::report
