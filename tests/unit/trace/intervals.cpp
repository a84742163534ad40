#include "trace/intervals.h"

#include "support/catch.h"

namespace trainopt::trace {

TEST_CASE("sets of instants", "[trace]") {
  const Intervals a = merged({{10, 20}, {0, 5}, {5, 7}, {15, 30}, {40, 40}});
  CHECK(a == Intervals{{0, 7}, {10, 30}});
  CHECK(length_ns(a) == 27);
  const Intervals b{{2, 12}, {20, 22}, {29, 50}};
  CHECK(intersection(a, b) == Intervals{{2, 7}, {10, 12}, {20, 22}, {29, 30}});
  CHECK(difference(a, b) == Intervals{{0, 2}, {12, 20}, {22, 29}});
  CHECK(difference(b, a) == Intervals{{7, 10}, {30, 50}});
  CHECK(clipped(a, {5, 11}) == Intervals{{5, 7}, {10, 11}});
  CHECK(clipped(a, {7, 10}).empty());
  CHECK(clipped(a, {9, 3}).empty());
  CHECK(merged({}).empty());
  CHECK(difference(a, {}) == a);
}

}  // namespace trainopt::trace
