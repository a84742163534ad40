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
    return "unknown error";
  } catch (const std::exception& known) {
    return known.what();
  }
}

/// libtorch 2.11 must be told which generators draw in the recording; newer ones see it at the first draw (pull request
/// 176753 of PyTorch) and no longer have the function.
template <class Recording>
void register_generator(Recording& recording, const at::Generator& generator) {
  if constexpr (requires { recording.register_generator_state(generator); })
    recording.register_generator_state(generator);
}

class CudaGraph : public Graph {
 public:
  CudaGraph(const at::Generator& generator, const CudaGraph* pool_owner)
      : pool_(pool_owner ? pool_owner->pool_ : c10::MempoolId_t{0, 0}) {
    register_generator(graph_, generator);  // the default generator registers itself
  }

  void record(const std::function<void()>& work) override {
    // Capture this thread only, so that the loader's threads may allocate and copy meanwhile.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    std::exception_ptr failed;
    try {
      work();
    } catch (...) {  // the stream must not be left recording
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
      // libtorch's allocator and generators still treat the recording as in progress. This must not look like an error
      // that smaller micro-batches could avoid.
      throw std::runtime_error(
          "could not end the recording of a CUDA graph, so this process can no longer record graphs or free GPU "
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

std::unique_ptr<Graph> make_graph(const at::Generator& generator, const Graph* pool_owner) {
  return std::make_unique<CudaGraph>(generator, static_cast<const CudaGraph*>(pool_owner));
}

}  // namespace trainopt
