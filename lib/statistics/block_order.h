// The coin that decides who begins. It is the only assumption of paired.h, so nothing else may choose the order.
#pragma once

#include <cstdint>

namespace trainopt {

/// Four turns of two arms: each order gives both arms the same mean place in the block, which removes a linear drift.
enum class Order { abba, baab };

/// A fair coin for each block (≥ 0), a pure function of seed and block.
Order block_order(uint64_t seed, int64_t block);

}  // namespace trainopt
