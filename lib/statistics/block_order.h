// The coin toss that decides which arm starts a block. The randomisation tests (paired.h, sign_flips.h) assume nothing
// else, so nothing else may choose the order.
#pragma once

#include <cstdint>

namespace trainopt {

/// Four turns of two arms. In either order both arms have the same mean position in the block, which removes a linear
/// drift.
enum class Order { abba, baab };

/// A fair coin toss for each block (≥ 0), a pure function of seed and block.
Order block_order(uint64_t seed, int64_t block);

}  // namespace trainopt
