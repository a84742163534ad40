#include "statistics/block_order.h"

#include "base/error.h"
#include "base/philox.h"

#include <numeric>
#include <utility>

namespace trainopt {
namespace {

constexpr uint64_t kMostBound = 64;

/// Uniform in [0, bound), 2 ≤ bound ≤ kMostBound; independent for different bounds.
uint64_t draw(uint64_t key, int64_t round, uint64_t bound) {
  const uint64_t fair = (uint64_t{1} << 32) / bound * bound;  // words from here on would favour small results
  for (uint64_t counter = bound - 2;; counter += kMostBound)
    for (const uint32_t word : philox(key, counter, static_cast<uint64_t>(round)))
      if (word < fair) return word % bound;
}

}  // namespace

std::vector<size_t> turn_order(uint64_t seed, int64_t round, size_t arms) {
  TRAINOPT_CHECK(round >= 0 && arms > 0 && arms <= kMostBound);
  std::vector<size_t> order(arms);
  std::iota(order.begin(), order.end(), size_t{0});
  const uint64_t key = mix_key(seed, "block order");
  for (size_t left = arms; left > 1; --left)  // Fisher and Yates
    std::swap(order[left - 1], order[left - 1 - draw(key, round, left)]);
  return order;
}

Order block_order(uint64_t seed, int64_t block) {
  return turn_order(seed, block, 2).front() == 0 ? Order::abba : Order::baab;
}

}  // namespace trainopt
