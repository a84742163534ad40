// libtorch's global settings that affect a step. They are a value in the plan, applied by a guard around the step, so
// that two trainers with different plans can take turns in one process.
#pragma once

#include <array>
#include <cstdint>

namespace c10 {
struct Device;
}

namespace trainopt {

// The implementations of attention that libtorch may use, without libtorch's headers: recipes name them.

/// Which one at::scaled_dot_product_attention uses. automatic: libtorch's choice among those that support the tensors.
/// math: one operation after the other. The others: this one, or math where it does not support the tensors.
enum class AttentionKernel { automatic, math, flash, efficient, cudnn };

/// These defaults differ from libtorch's, which lets cuDNN use TF32.
struct BackendSettings {
  bool cudnn_benchmark = false;  ///< time cuDNN's algorithms at each new shape and keep the fastest
  bool allow_tf32 =
      false;  ///< compute float32 convolutions and matrix products with a 10-bit mantissa (GPU, sm_80 and later)
  bool deterministic = false;  ///< use only bit-reproducible algorithms; an operation that has none throws
  AttentionKernel attention = AttentionKernel::automatic;

  /// Whether float32 products may be computed with less than float32's precision.
  bool rounds_products() const { return allow_tf32; }
  bool operator==(const BackendSettings&) const = default;
};

/// The implementation of attention that libtorch is currently set to.
AttentionKernel current_attention_kernel();

/// libtorch's current settings; allow_tf32 is true if both cuDNN and cuBLAS may use TF32.
BackendSettings current_backend_settings();

/// The largest error of one float32 matrix product on this device under the current settings, relative to the product's
/// largest value: about 1e-7 in float32, about 3e-4 with inputs rounded to TF32. Shows what the hardware really did.
double float32_product_error(c10::Device device);

/// Whether trainers with these settings may take turns in one process. cuDNN's plans are cached per process by shape,
/// so one trainer would reuse a plan that the other chose without timing.
bool can_share_process(const BackendSettings& a, const BackendSettings& b);

/// Applies settings and restores the previous ones at scope exit. Takes well under a microsecond if nothing changes.
class BackendGuard {
 public:
  explicit BackendGuard(const BackendSettings& settings);
  ~BackendGuard();
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

 private:
  struct AttentionFlags {
    bool flash, efficient, cudnn, math;
    std::array<int64_t, 5> order;  ///< at::SDPBackend: the first that is on and supports the tensors is used
    bool operator==(const AttentionFlags&) const = default;
  };
  static AttentionFlags read_attention();
  static AttentionFlags attention_flags(AttentionKernel kernel, AttentionFlags now);
  static void change_attention(const AttentionFlags& to);
  /// libtorch's individual flags. The three settings here correspond to several flags there, which may disagree with
  /// each other beforehand.
  struct Flags {
    bool cudnn_benchmark, cudnn_tf32, cublas_tf32, cudnn_deterministic, mkldnn_deterministic, deterministic, warn_only;
    AttentionFlags attention;
  };
  static Flags read();
  static void change(const Flags& from, const Flags& to);
  Flags before_, during_;
};

}  // namespace trainopt
