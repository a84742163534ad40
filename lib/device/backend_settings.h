// The settings of libtorch that hold for a step and are global there: a value in the plan, applied by a guard around
// the step, so that two trainers with different plans can take turns in one process.
#pragma once

namespace trainopt {

/// The defaults here are ours: libtorch itself lets cuDNN use TF32.
struct BackendSettings {
  bool cudnn_benchmark = false;  ///< time cuDNN's algorithms at each new shape and keep the fastest
  bool allow_tf32 =
      false;  ///< convolutions and matrix products of float32 with 10 bits of mantissa (GPU, sm_80 and later)
  bool deterministic = false;  ///< only algorithms that repeat bit for bit; an operation without one throws

  bool operator==(const BackendSettings&) const = default;
};

/// As libtorch has them now; TF32 is allowed where both cuDNN and cuBLAS may use it.
BackendSettings current_backend_settings();

/// Whether trainers with these settings may take turns in one process. cuDNN's plans are cached for the process by
/// shape: what one chose without timing, the other would take without timing.
bool share_a_process(const BackendSettings& a, const BackendSettings& b);

/// Applies settings and puts back what was there. Well under a microsecond when nothing changes.
class BackendGuard {
 public:
  explicit BackendGuard(const BackendSettings& settings);
  ~BackendGuard();
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

 private:
  /// libtorch's flags one by one: three settings of ours are six of theirs, which need not agree with each other
  /// before.
  struct Flags {
    bool cudnn_benchmark, cudnn_tf32, cublas_tf32, cudnn_deterministic, mkldnn_deterministic, deterministic, warn_only;
  };
  static Flags read();
  static void change(const Flags& from, const Flags& to);
  Flags before_, during_;
};

}  // namespace trainopt
