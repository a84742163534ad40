#include "statistics/block_order.h"

#include "base/error.h"
#include "base/philox.h"

#include <numeric>
#include <utility>

namespace trainopt {

std::vector<size_t> turn_order(uint64_t seed, int64_t round, size_t arms) {
  TRAINOPT_CHECK(round >= 0 && arms > 0);
  PhiloxStream random(mix_key(seed, "block order"), static_cast<uint64_t>(round));
  std::vector<size_t> order(arms);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t left = arms; left > 1; --left) std::swap(order[left - 1], order[random.next_below(left)]);
  return order;
}

Order block_order(uint64_t seed, int64_t block) {
  return turn_order(seed, block, 2).front() == 0 ? Order::abba : Order::baab;
}

}  // namespace trainopt
