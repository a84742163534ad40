#include "statistics/block_order.h"

#include "base/error.h"
#include "base/philox.h"

namespace trainopt {

Order block_order(uint64_t seed, int64_t block) {
  TRAINOPT_CHECK(block >= 0);
  const PhiloxBlock bits = philox(mix_key(seed, "block order"), 0, static_cast<uint64_t>(block));
  return (bits[0] & 1) == 0 ? Order::abba : Order::baab;
}

}  // namespace trainopt
