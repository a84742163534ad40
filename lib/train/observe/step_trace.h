// What one observed step did: the evidence for each switch's receipt. The trace knows no optimization. It contains the
// operations that libtorch's dispatcher saw, figures from the modules involved in the step, and numbers that parts post
// under their own labels. Only the code that posts and reads a label knows its meaning.
#pragma once

#include "data/batch_source.h"
#include "device/backend_settings.h"
#include "device/device_allocator.h"
#include "device/memory.h"
#include "device/tensor.h"
#include "train/observe/memory_findings.h"

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trainopt {

/// An operation in which the host waits for the device: one kind of wait at one place of the observed step.
struct HiddenWait {
  std::string operation;  ///< as the program called it: "aten::item", not the "aten::_local_scalar_dense" inside it
  std::string where;      ///< StepPlace::phase
  std::string unit;       ///< empty outside the units
  std::string why;
  int64_t calls = 0;
  std::optional<double> ms;  ///< host time inside the calls; null: reported outside any operation
};

/// A tensor input of an operation, described without holding the tensor.
struct TracedTensor {
  c10::ScalarType type = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes;
  bool is_nhwc = false;  ///< stored as NHWC; if one channel or one pixel makes it ambiguous, libtorch's interpretation
  bool is_parameter = false;  ///< a float32 leaf that requires gradients

  int64_t dim() const { return static_cast<int64_t>(sizes.size()); }
  auto operator<=>(const TracedTensor&) const = default;
};

/// An input of an operation. Everything else (lists, floating-point numbers, undefined tensors) is std::monostate.
using TracedInput = std::variant<std::monostate, TracedTensor, int64_t, bool>;

/// An operation as the dispatcher saw it, or a label posted with RECORD_FUNCTION.
struct TracedOperation {
  std::string name;                 ///< "aten::mm", "trainopt::…"
  std::vector<TracedInput> inputs;  ///< in the operation's order
  std::string range;                ///< the innermost enclosing RECORD_USER_SCOPE; empty if there is none
  int64_t depth = 0;                ///< number of enclosing operations
  bool grad_mode = false;           ///< off in backward, in evaluation and inside this project's autograd functions

  /// Input `i` if it is a tensor; otherwise null.
  const TracedTensor* tensor(size_t i) const;
  /// Input `i` if it is an integer or a boolean; otherwise 0.
  int64_t number(size_t i) const;
  auto operator<=>(const TracedOperation&) const = default;
};

struct StepTrace {
  using Operations = std::map<TracedOperation, int64_t>;

  int64_t step = 0;  ///< which step was observed; 0: none
  /// Operation → number of calls. Equal operations share an entry, so many micro-batches take no more memory than one.
  Operations operations;

  BackendSettings backend;            ///< libtorch's settings during the step
  BatchSourceStats loader;            ///< the step's; `threads` and `thread_starts` of the run so far, `copies` since
                                      ///< the batches were opened
  CachingAllocator::Stats allocator;  ///< requests during the step, bytes held at its end; zeros if none is installed
  MemoryStats device_memory;          ///< at the step's end; counts and peaks of the process so far; zeros on the CPU
  std::string device_allocator_settings;  ///< settings of libtorch's allocator for the device (device_allocator.h)
  double float32_product_error =
      0;                           ///< float32_product_error() before the step; 0: not measured (full float32, or CPU)
  int64_t page_faults = 0;         ///< minor page faults (no disk access) of the process during the step
  int64_t later_steps = 0;         ///< this process's, without the first ten, in which memory is still being laid out
  int64_t later_page_faults = 0;   ///< page faults in these steps
  int64_t parameters = 0;          ///< number of tensors that this rank updates
  int64_t gradients_at_start = 0;  ///< number of gradients that existed before the step's first backward
  int64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;  ///< bytes held by this rank
  double sent_bytes = 0;            ///< bytes sent by this rank in the step's collectives, computed with wire_bytes()
  double across_bytes = 0;          ///< part of them in collectives between ranks of which each is on another machine
  int64_t largest_micro_batch = 0;  ///< samples in the largest of the run so far, before a pipeline divides it

  /// Updates that float16's loss scale skipped in this process; null: there is none, or the run goes on.
  struct SkippedUpdates {
    int64_t all = 0, at_end = 0;  ///< at_end: without one among them that was not skipped
  };
  std::optional<SkippedUpdates> skipped_updates;

  MemoryPeak memory;                                    ///< the step's peak; step 0 if no recorder was there
  std::vector<MemorySpike> memory_spikes;               ///< spikes of the run so far
  std::vector<MemoryLeak> memory_leaks;                 ///< leaks of the run so far; searched for every ten steps
  std::optional<std::vector<HiddenWait>> hidden_waits;  ///< null: not looked for (debug.find_syncs)

  /// Numbers of the run so far that parts post under their own labels.
  std::map<std::string, double, std::less<>> counts;

  /// Number of calls of operations with this name, or that `chosen` accepts.
  int64_t calls(std::string_view name) const;
  int64_t calls(const std::function<bool(const TracedOperation&)>& chosen) const;
  /// An operation with this name, or null if there was none.
  const TracedOperation* find(std::string_view name) const;
  /// What was posted under this label; 0 if nothing was.
  double count(std::string_view label) const;
};

// Convolutions are either libtorch's or this project's. The project's own are named trainopt::<how>_convolution and
// trainopt::<how>_convolution_backward, take the images as first input, and compute in float32 whatever the images'
// type in memory. One backward operation computes the gradients of both weight and input.

/// Whether this is a convolution of an image batch (4-D) in the forward pass.
bool is_forward_convolution(const TracedOperation& operation);
/// Whether this is one of the project's own convolutions: a forward in training, or a backward.
bool is_own_convolution(const TracedOperation& operation);
/// Number of calls of convolutions and matrix products, forward and backward, by element type in memory:
/// "bfloat16" → calls. An attention that is computed in one operation counts as one.
std::map<std::string, int64_t> multiplications_by_type(const StepTrace& trace);

class Listening;

/// Records the operations of this thread, and of the backward threads that it starts, during its lifetime. That costs a
/// few microseconds per operation, so it is done for only one warm-up step.
class StepObserver {
 public:
  explicit StepObserver(StepTrace::Operations& operations);
  ~StepObserver();

 private:
  std::unique_ptr<Listening> listening_;
};

}  // namespace trainopt
