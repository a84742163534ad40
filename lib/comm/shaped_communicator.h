// Exchanges without data, for forecasts of memory.
#pragma once

#include "comm/communicator.h"

#include <memory>

namespace trainopt {

/// Stands for the communicator of one rank of `position.ranks` on `device`, for meta tensors: every exchange returns at
/// once, and holds as long as it exists what the real one would allocate.
std::unique_ptr<Communicator> make_shaped_communicator(const RankPosition& position, c10::Device device);

}  // namespace trainopt
