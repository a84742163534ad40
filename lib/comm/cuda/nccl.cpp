// NCCL: collectives between GPUs. nccl.h must match the NCCL that libtorch was built with, because c10d's options class
// contains ncclConfig_t.
#include "comm/process_groups.h"

#include <nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace trainopt {

constexpr double kTimeToExplainS = 60;

static_assert(NCCL_MAJOR == 2 && NCCL_MINOR >= 27, "nccl.h is older than libtorch's NCCL");

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            double timeout_s) {
  auto settings = c10d::ProcessGroupNCCL::Options::create();
  // Longer than the job's own time limit, which explains what happened before NCCL's watchdog gives up.
  settings->timeout = std::chrono::milliseconds(static_cast<int64_t>((timeout_s + kTimeToExplainS) * 1e3));
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, ranks, std::move(settings));
}

}  // namespace trainopt
