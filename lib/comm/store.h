// The key-value store that the ranks share, by name only: c10d's own header costs every file that includes it seconds.
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}  // namespace c10d
