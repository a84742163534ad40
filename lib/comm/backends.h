// The libraries that implement collectives, one per file.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

namespace trainopt {

/// `address`: this machine's address as the other ranks see it. Connects to them, so every rank must call it.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            const std::string& address, double timeout_s);

/// For tensors on this process's current GPU. Throws UserError without libtrainopt_cuda.so.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            double timeout_s);

}  // namespace trainopt
