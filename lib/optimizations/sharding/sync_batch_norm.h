// Batch-norm with statistics over the samples of all ranks, as one rank with the whole batch would compute them.
#pragma once

#include "model/operations.h"

#include <memory>

namespace trainopt {

class Communicator;

/// Forward combines the ranks' means and variances (Chan, Golub and LeVeque 1979); backward all-reduces its two sums
/// (Ioffe and Szegedy 2015). Every rank must run the same layers in the same order.
std::unique_ptr<BatchNormOperations> make_sync_batch_norm(Communicator& communicator);

}  // namespace trainopt
