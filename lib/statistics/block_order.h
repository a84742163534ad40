// The random choice of the order in which arms take turns. The randomisation tests (paired.h, sign_flips.h) assume
// nothing else, so nothing else may choose the order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainopt {

/// Four turns of two arms. In either order both arms have the same mean position in the block, which removes a linear
/// drift.
enum class Order { abba, baab };

/// The order of the first turns of a round's `arms` (≥ 1) arms: a uniformly random permutation of 0, 1, …; the second
/// turns are in the reverse order. So all arms have the same mean position in the round, and any two of them form a
/// block in either order with probability ½, whatever the positions of the others. A pure function of seed and `round`
/// (≥ 0).
std::vector<size_t> turn_order(uint64_t seed, int64_t round, size_t arms);

/// turn_order() for a round of two arms: a fair coin toss.
Order block_order(uint64_t seed, int64_t block);

}  // namespace trainopt
