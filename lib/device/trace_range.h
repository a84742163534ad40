// Labels for stretches of work, as they appear in a profiler's trace and in Nsight Systems.
#pragma once

#include <cstdint>
#include <memory>

namespace at {
struct RecordFunction;
}

namespace trainopt {

/// Labels the work of its scope on this thread: a user annotation in libtorch's profiler, and an NVTX range in a build
/// with CUDA. Without a profiler it costs a few nanoseconds. `name` must outlive the range. Ranges of a thread nest.
class TraceRange {
 public:
  enum class Ends { on_this_thread, on_any_thread };

  explicit TraceRange(const char* name, Ends ends = Ends::on_this_thread);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  std::unique_ptr<at::RecordFunction> recorded_;  ///< null if no profiler is active
  Ends ends_;
  uint64_t nvtx_;
};

/// NVTX ranges; without libtrainopt_cuda.so they do nothing. A range that ends on any thread is ended by the number
/// that begin_nvtx_range() returned; others nest.
uint64_t begin_nvtx_range(const char* name, TraceRange::Ends ends) noexcept;
void end_nvtx_range(uint64_t range, TraceRange::Ends ends) noexcept;

}  // namespace trainopt
