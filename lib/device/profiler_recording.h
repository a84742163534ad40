// Records a trace with libtorch's profiler (Kineto). Its headers, which promise no stability, are included only in the
// source of this file.
#pragma once

#include <filesystem>

namespace trainopt {

struct RecordingOptions {
  bool cpu = true;  ///< operations and labels, on all threads; with `memory`, only this thread and those of backward
  bool gpu = true;  ///< kernels, copies and CUDA calls; nothing without an NVIDIA GPU
  bool shapes = false;  ///< the sizes of each operation's inputs
  bool memory = false;  ///< allocations and releases
};

/// One recording of this process; there may be only one at a time.
class ProfilerRecording {
 public:
  /// Prepares the recording. From here on a GPU's tracing is enabled, so that its start-up cost is paid before start().
  explicit ProfilerRecording(const RecordingOptions& options);
  /// Discards what was not saved.
  ~ProfilerRecording();
  ProfilerRecording(const ProfilerRecording&) = delete;
  ProfilerRecording& operator=(const ProfilerRecording&) = delete;

  void start();
  /// Ends the recording and writes it to `file` in Chrome's trace format. Call after start(), once, when the device is
  /// idle. Throws UserError(storage) with the reason; then nothing is left of `file`.
  void save(const std::filesystem::path& file);

 private:
  RecordingOptions options_;
  bool prepared_ = false, started_ = false;
};

}  // namespace trainopt
