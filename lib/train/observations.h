// What one step really did, seen from libtorch's dispatcher: the evidence behind each switch's receipt. Observing costs
// some microseconds an operation, so it is done for one warm-up step only.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace trainopt {

/// How often an operation ran as a fused kernel, forward and backward, and how often as libtorch's own.
struct FusedCounts {
  int64_t fused = 0, gradients = 0, plain = 0;
};

/// What an update of all parameters at once took along.
struct FusedUpdate {
  int64_t tensors = 0, launches = 0, copies = 0;          ///< copies: of weights, in 16 bits
  bool scaled = false, clipped = false, cleared = false;  ///< gradients, as the update read them
};

struct Observations {
  int64_t step = 0;                                  ///< which step was observed; 0: none
  std::map<std::string, int64_t> convolution_types;  ///< "bfloat16" → calls, forward and backward
  std::map<std::string, int64_t> product_types;      ///< the same for matrix products
  int64_t weights_cast = 0;                          ///< float32 leaves to 16 bits, by autocast or anybody
  int64_t convolution_inputs = 0,
          channels_last_inputs = 0;  ///< 4-D inputs of forward convolutions, and those stored as NHWC
  int64_t winograd_convolutions = 0,
          winograd_gradients =
              0;  ///< of them, those by Winograd's filtering; gradients of one weight and its input are one
  int64_t computed_in_float32 =
      0;  ///< of convolution_types' calls, those whose products and sums are float32 whatever their numbers in memory
  FusedCounts norms{}, average_pools{}, losses{};  ///< of training; what evaluation computes is not the step's
  int64_t optimizer_operations = 0;                ///< operations of Optimizer::step(), nested ones not counted
  FusedUpdate fused_update;
  int64_t gradient_measures = 0;                   ///< looks at all gradients at once, before such an update
  int64_t gradients_at_start = 0, parameters = 0;  ///< gradients that existed before the step's first backward
  int64_t bytes_delivered =
      0;  ///< of the step's batches as the loader handed them over, or of the numbers that say which images they have
  int64_t resident_bytes = 0;  ///< of a data set that lies on the device
  int64_t bytes_to_device = 0, pinned_bytes_to_device = 0, copies_beside_step = 0;  ///< what of them crossed, and how
  int64_t loader_threads = 0,
          loader_starts = 0;  ///< threads that have loaded a sample; how often threads were started; of the run so far
  int64_t page_faults = 0;    ///< of the process during the step, those that read no file
  int64_t kept_blocks_given = 0, kept_bytes = 0;        ///< by the CachingAllocator: in the step; held at its end
  int64_t loader_buffers = 0, largest_micro_batch = 0;  ///< batch buffers; samples
  double sent_bytes = 0;  ///< by this rank in the step's exchanges, by the collectives' factors
  int64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;  ///< held by this rank
  int64_t eager_steps = 0, replayed_steps = 0;  ///< of a runner that records steps, of the run so far
  bool recording_ended = false;                 ///< for want of memory
  double recording_ms = 0;                      ///< host time that recording them took, of the run so far
  double eager_step_ms = 0,
         replayed_step_ms =
             0;               ///< one step of the kind that is replayed most, the device idle before and after; 0: none
  std::string input_type;     ///< of the batch as it left the loader: "uint8", "float32"
  std::string finished_type;  ///< of its images as the device finished them; empty: it does not
  bool tf32_allowed = false, cudnn_benchmark = false;  ///< as libtorch's context said during the step
};

/// As recipes write it: "bfloat16", "float32", "uint8"; libtorch's name for others.
std::string type_name(c10::ScalarType type);

/// Names under which fused kernels are seen, once each time they run.
inline constexpr const char *kFusedNormLabel = "trainopt::fused_batch_norm",
                            *kFusedNormGradientLabel = "trainopt::fused_batch_norm_backward";
inline constexpr const char *kFusedPoolLabel = "trainopt::fused_average_pool",
                            *kFusedPoolGradientLabel = "trainopt::fused_average_pool_backward";
inline constexpr const char *kFusedLossLabel = "trainopt::fused_cross_entropy",
                            *kFusedLossGradientLabel = "trainopt::fused_cross_entropy_backward";
/// With the input; gradients too.
inline constexpr const char *kWinogradLabel = "trainopt::winograd_convolution",
                            *kWinogradGradientLabel = "trainopt::winograd_convolution_backward";
inline constexpr const char *kFloat32ConvolutionLabel = "trainopt::float32_convolution",
                            *kFloat32ConvolutionGradientLabel = "trainopt::float32_convolution_backward";
/// Seen once for each such update, with its numbers in FusedUpdate's order; and for each measure.
inline constexpr const char *kFusedUpdateLabel = "trainopt::fused_update",
                            *kGradientMeasureLabel = "trainopt::gradient_measure";

/// Counts the operations of this thread (and of the backward threads it starts) while it lives.
class StepObserver {
 public:
  explicit StepObserver(Observations& observations);
  ~StepObserver();
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;

 private:
  struct Tap;
  std::shared_ptr<Tap> tap_;
  uint64_t callback_;
  class Installed;
  std::unique_ptr<Installed> installed_;
};

}  // namespace trainopt
