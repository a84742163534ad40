// Labels for stretches of work, as they appear in a profiler's trace and in Nsight Systems.
#pragma once

#include <memory>

namespace at {
struct RecordFunction;
}

namespace trainopt {

/// Labels the work of its scope on this thread: a user annotation in libtorch's profiler, and an NVTX range in a build
/// with CUDA. Without a profiler it costs a few nanoseconds. `name` must outlive the range. Ranges of a thread nest.
class TraceRange {
 public:
  explicit TraceRange(const char* name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  std::unique_ptr<at::RecordFunction> recorded_;  ///< null if no profiler is active
  bool nvtx_;
};

/// NVTX ranges; in a build without CUDA they do nothing. begin_nvtx_range() returns whether a range was opened, which
/// end_nvtx_range() must then close on the same thread.
bool begin_nvtx_range(const char* name) noexcept;
void end_nvtx_range() noexcept;

}  // namespace trainopt
