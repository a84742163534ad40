// A communicator whose exchanges take no time: for measuring what communication costs.
#pragma once

#include "comm/communicator.h"

#include <memory>

namespace trainopt {

/// The communicator of one rank of `position.ranks`, which needs no other rank to exist: every exchange returns at
/// once, without sending or waiting, and counts no traffic. all_reduce and broadcast leave the data as they are,
/// reduce_scatter returns this rank's part, gather repeats this rank's values for every rank. all_gather repeats `mine`
/// in every part; if `mine` is already in `all`, the other parts keep what they hold. So every value is defined, but
/// training is not the job's: only the time of a step means something. For tensors on any device.
std::unique_ptr<Communicator> make_free_communicator(const RankPosition& position);

}  // namespace trainopt
