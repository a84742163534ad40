// The libraries that implement collectives, one per file.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <optional>
#include <string>

namespace trainopt {

/// `address`: this machine's address as the other ranks see it. Connects to them, so every rank must call it.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            const std::string& address, double timeout_s);

struct NcclOptions {
  double timeout_s = 600;
  std::optional<int64_t> min_ctas, max_ctas;  ///< thread blocks per collective; null: NCCL's choice
};
/// For tensors on this process's current GPU. Throws UserError in a build without CUDA.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            const NcclOptions& options);

}  // namespace trainopt
