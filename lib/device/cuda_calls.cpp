// What this module's headers promise of GPUs: a call of libtrainopt_cuda.so and, while that is not open, what holds
// without CUDA.
#include "device/cuda_library.h"
#include "device/cuda_table.h"

namespace trainopt {
namespace {

/// The answer of a process that has not asked CUDA, because it has no libtrainopt_cuda.so.
const CudaStart& start_without_library() {
  static const CudaStart start{.built_for_cuda = built_for_cuda(), .library_problem = cuda_library_problem()};
  return start;
}

}  // namespace

const CudaStart& start_cuda() { return cuda_table() ? cuda_table()->start_cuda() : start_without_library(); }

DeviceFacts gpu_facts(int index) {
  if (cuda_table()) return cuda_table()->gpu_facts(index);
  throw UserError(fmt::format("this process has no GPU support, so cuda:{} cannot be used", index));
}

StartError start_error(int code) { return cuda_table() ? cuda_table()->start_error(code) : StartError(); }

StartError open_gpu(int index) { return cuda_table() ? cuda_table()->open_gpu(index) : StartError(); }

std::optional<GpuFault> gpu_fault(const std::exception& error) {
  return cuda_table() ? cuda_table()->gpu_fault(error) : std::nullopt;
}

std::unique_ptr<Graph> make_graph(const at::Generator& generator, const Graph* pool_owner) {
  if (cuda_table()) return cuda_table()->make_graph(generator, pool_owner);
  throw UserError("recording a step needs an NVIDIA GPU, and this process has no CUDA support");
}

void record_gpu_memory_history(size_t max_events) {
  if (cuda_table()) cuda_table()->record_gpu_memory_history(max_events);
}

void end_gpu_memory_history() {
  if (cuda_table()) cuda_table()->end_gpu_memory_history();
}

std::string gpu_memory_snapshot() { return cuda_table() ? cuda_table()->gpu_memory_snapshot() : std::string(); }

bool set_sync_warnings(bool on) { return cuda_table() && cuda_table()->set_sync_warnings(on); }

uint64_t begin_nvtx_range(const char* name, TraceRange::Ends ends) noexcept {
  return cuda_table() ? cuda_table()->begin_nvtx_range(name, ends) : 0;
}

void end_nvtx_range(uint64_t range, TraceRange::Ends ends) noexcept {
  if (cuda_table()) cuda_table()->end_nvtx_range(range, ends);
}

}  // namespace trainopt
