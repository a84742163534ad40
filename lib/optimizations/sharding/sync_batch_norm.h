// Batch-norm whose statistics are those of all ranks' samples together, as one rank with the whole batch would have
// them.
#pragma once

#include "model/batch_norm_operations.h"

#include <memory>

namespace trainopt {

class Communicator;

/// Mean and variance are put together from the ranks' own (Chan, Golub and LeVeque 1979); backward's two sums are
/// all-reduced (Ioffe and Szegedy 2015). Every rank must run the same layers in the same order.
std::unique_ptr<BatchNormOperations> make_sync_batch_norm(Communicator& communicator);

}  // namespace trainopt
