#include "device/graph.h"

#include <ATen/cuda/CUDAGraph.h>

#include <exception>
#include <stdexcept>
#include <string>

namespace trainopt {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
    return "for no known reason";
  } catch (const std::exception& known) {
    return known.what();
  }
}

class CudaGraph : public Graph {
 public:
  CudaGraph(const at::Generator& generator, const CudaGraph* neighbour)
      : pool_(neighbour ? neighbour->pool_ : c10::MempoolId_t{0, 0}) {
    graph_.register_generator_state(generator);  // the default one registers itself
  }

  void record(const std::function<void()>& work) override {
    // Of this thread only: the loader's may allocate and copy meanwhile.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    std::exception_ptr failed;
    try {
      work();
    } catch (...) {  // the stream must not stay a recording one
      failed = std::current_exception();
    }
    try {
      graph_.capture_end();
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
    try {
      pool_ = graph_.pool();  // throws unless the recording has ended
    } catch (...) {
      // libtorch's allocator and generators still take it for under way. Not to be mistaken for an error that smaller
      // pieces could avoid.
      throw std::runtime_error(
          "a CUDA graph's recording could not be ended, after which this process can neither record nor free a GPU's "
          "memory: " +
          text_of(failed));
    }
    if (failed) std::rethrow_exception(failed);
  }

  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
  c10::MempoolId_t pool_;
};

}  // namespace

std::unique_ptr<Graph> make_graph(const at::Generator& generator, const Graph* neighbour) {
  return std::make_unique<CudaGraph>(generator, static_cast<const CudaGraph*>(neighbour));
}

}  // namespace trainopt
