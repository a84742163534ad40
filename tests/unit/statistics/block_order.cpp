#include "statistics/block_order.h"

#include "support/catch.h"

using namespace trainopt;

TEST_CASE("the coin is fair, memoryless, and depends on its seed") {
  int abba = 0, changes = 0, other = 0;
  for (int64_t block = 0; block < 10000; ++block) {
    const Order order = block_order(1, block);
    CHECK(order == block_order(1, block));
    abba += order == Order::abba;
    changes += block > 0 && order != block_order(1, block - 1);
    other += order != block_order(2, block);
  }
  // Four standard deviations of 50.
  CHECK(std::abs(abba - 5000) < 200);
  CHECK(std::abs(changes - 5000) < 200);
  CHECK(std::abs(other - 5000) < 200);
}
