// What one step really did, seen from libtorch's dispatcher: the evidence behind each switch's receipt. Observing costs some
// microseconds an operation, so it is done for one warm-up step only.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace trainopt {

struct Observations {
  int64_t step = 0;                                        ///< which step was observed; 0: none
  std::map<std::string, int64_t> convolution_types;        ///< "bfloat16" → calls, forward and backward
  std::map<std::string, int64_t> product_types;            ///< the same for matrix products
  int64_t convolution_inputs = 0, channels_last_inputs = 0;   ///< 4-D inputs of forward convolutions, and those stored as NHWC
  int64_t fused_norms = 0, fused_norm_gradients = 0, plain_norms = 0;   ///< batch-norms of fused kernels, forward and backward; those of libtorch
  int64_t optimizer_operations = 0;                        ///< operations of Optimizer::step(), nested ones not counted
  int64_t gradients_at_start = 0, parameters = 0;          ///< gradients that existed before the step's first backward
  int64_t bytes_delivered = 0;                             ///< of the step's batches as the loader handed them over
  int64_t bytes_to_device = 0, pinned_bytes_to_device = 0, copies_beside_step = 0;   ///< what of them crossed, and how
  int64_t loader_threads = 0, loader_starts = 0;           ///< threads that have loaded a sample; how often threads were started; of the run so far
  int64_t page_faults = 0;                                 ///< of the process during the step, those that read no file
  int64_t kept_blocks_given = 0, kept_bytes = 0;           ///< by the KeepingAllocator: in the step; held at its end
  int64_t loader_buffers = 0, largest_micro_batch = 0;     ///< batch buffers; samples
  double sent_bytes = 0;                                   ///< by this rank in the step's exchanges, by the collectives' factors
  int64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;   ///< held by this rank
  std::string input_type;                                  ///< of the batch as it left the loader: "uint8", "float32"
  bool tf32_allowed = false, cudnn_benchmark = false;      ///< as libtorch's context said during the step
};

/// As recipes write it: "bfloat16", "float32", "uint8"; libtorch's name for others.
std::string type_name(c10::ScalarType type);

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
