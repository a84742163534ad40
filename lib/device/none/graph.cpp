#include "device/graph.h"

#include "base/error.h"

namespace trainopt {

std::unique_ptr<Graph> make_graph(const at::Generator&, const Graph*) {
  throw UserError("steps are recorded on NVIDIA GPUs; this build has no CUDA");
}

}  // namespace trainopt
