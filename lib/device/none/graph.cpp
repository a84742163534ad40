#include "device/graph.h"

#include "base/error.h"

namespace trainopt {

std::unique_ptr<Graph> make_graph(const at::Generator&, const Graph*) {
  throw UserError("optimizations.cuda_graph: this build has no CUDA; leave it out");
}

}  // namespace trainopt
