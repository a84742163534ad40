#include "base/error.h"
#include "comm/backends.h"
#include "device/cuda_library.h"
#include "device/cuda_table.h"

namespace trainopt {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            double timeout_s) {
  if (cuda_table()) return cuda_table()->make_nccl(store, rank, ranks, timeout_s);
  throw UserError("parallel.backend: this process has no CUDA support, so it has no NCCL; use gloo");
}

}  // namespace trainopt
