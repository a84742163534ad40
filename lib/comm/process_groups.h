// Creates the communicator of a job with several ranks.
#pragma once

#include "comm/c10d_store.h"
#include "comm/communicator.h"
#include "comm/store.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>

namespace trainopt {

struct ProcessGroupOptions {
  RankPosition position;
  std::string address;  ///< this machine's, as the other ranks see it
  double timeout_s = 600;
};

/// Connects this rank with the others: NCCL for tensors on a GPU, otherwise Gloo, and Gloo for values on the host.
/// Every rank must call it, with the same store, which nothing else may use.
std::unique_ptr<Communicator> connect_process_groups(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const ProcessGroupOptions& options, c10::Device device);

// The libraries that implement collectives, one per file.

/// `address`: this machine's address as the other ranks see it. Connects to them, so every rank must call it.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            const std::string& address, double timeout_s);

/// For tensors on this process's current GPU. Throws UserError without libtrainopt_cuda.so.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            double timeout_s);

}  // namespace trainopt
