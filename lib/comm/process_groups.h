// Creates the communicator of a job with several ranks.
#pragma once

#include "comm/communicator.h"
#include "comm/store.h"

#include <memory>
#include <string>

namespace trainopt {

struct ProcessGroupOptions {
  RankPosition position;
  std::string address;  ///< of this machine, as the other ranks see it
  double timeout_s = 600;
};

/// Connects this rank with the others: NCCL for tensors on a GPU, otherwise Gloo, and Gloo for values on the host.
/// Every rank must call it, with the same store, which nothing else may use.
std::unique_ptr<Communicator> connect_process_groups(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const ProcessGroupOptions& options, c10::Device device);

}  // namespace trainopt
