#include "device/graph.h"

#include "base/error.h"

namespace trainopt {

std::unique_ptr<Graph> make_graph(const at::Generator&, const Graph*) {
  throw UserError("recording a step needs an NVIDIA GPU, and this build has no CUDA support");
}

}  // namespace trainopt
