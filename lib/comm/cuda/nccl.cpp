// NCCL: collectives between GPUs. The header must be that of the library which libtorch was built with: its
// configuration is part of c10d's class.
#include "comm/backends.h"

#include <nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace trainopt {

static_assert(NCCL_MAJOR == 2 && NCCL_MINOR >= 27, "nccl.h is older than libtorch's NCCL");

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            const NcclOptions& options) {
  auto settings = c10d::ProcessGroupNCCL::Options::create();
  settings->timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1e3));
  if (options.min_ctas) settings->config.minCTAs = static_cast<int>(*options.min_ctas);
  if (options.max_ctas) settings->config.maxCTAs = static_cast<int>(*options.max_ctas);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, ranks, std::move(settings));
}

}  // namespace trainopt
