// What one observed step did: the evidence behind each switch's receipt. The trace knows no optimization. It holds the
// operations that libtorch's dispatcher saw, figures of the modules that took part in the step, and numbers that parts
// post under labels of their own. Who reads a label is who knows it.
#pragma once

#include "data/batch_source.h"
#include "device/backend_settings.h"
#include "device/caching_allocator.h"
#include "train/type_name.h"

#include <compare>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trainopt {

/// A tensor among an operation's inputs. The tensor itself is not kept.
struct TracedTensor {
  c10::ScalarType type = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes;
  bool is_nhwc = false;       ///< stored as NHWC; where one channel or one pixel leaves it open, as libtorch takes it
  bool is_parameter = false;  ///< a float32 leaf that requires gradients

  int64_t dim() const { return static_cast<int64_t>(sizes.size()); }
  auto operator<=>(const TracedTensor&) const = default;
};

/// An input of an operation. Everything else (lists, floating-point numbers, undefined tensors) is std::monostate.
using TracedInput = std::variant<std::monostate, TracedTensor, int64_t, bool>;

/// An operation as the dispatcher saw it, or a label that our own code posted with RECORD_FUNCTION.
struct TracedOperation {
  std::string name;                 ///< "aten::mm", "trainopt::…"
  std::vector<TracedInput> inputs;  ///< in the operation's order
  std::string range;                ///< the innermost RECORD_USER_SCOPE around it; empty outside of all
  int64_t depth = 0;                ///< how many other operations it ran inside of
  bool grad_mode = false;           ///< off in backward, in evaluation and inside autograd functions of our own

  /// Input `i` if it is a tensor; otherwise null.
  const TracedTensor* tensor(size_t i) const;
  /// Input `i` if it is an integer or a boolean; otherwise 0.
  int64_t number(size_t i) const;
  auto operator<=>(const TracedOperation&) const = default;
};

struct StepTrace {
  using Operations = std::map<TracedOperation, int64_t>;

  int64_t step = 0;  ///< which step was observed; 0: none
  /// → how often it ran. Equal operations are one entry: many micro-batches take no more memory than one.
  Operations operations;

  BackendSettings backend;              ///< as libtorch said during the step
  BatchSourceStats loader;              ///< of the step; `threads` and `thread_starts` of the run so far
  CachingAllocator::Figures allocator;  ///< requests of the step, bytes held at its end; zeros if none is installed
  int64_t page_faults = 0;              ///< of the process during the step, without those that read a file
  int64_t parameters = 0;               ///< how many tensors this rank updates
  int64_t gradients_at_start = 0;       ///< how many gradients existed before the step's first backward
  int64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;  ///< held by this rank
  double sent_bytes = 0;            ///< by this rank in the step's collectives, by their wire factors
  int64_t largest_micro_batch = 0;  ///< samples; of the run so far

  /// Numbers that parts post under labels of their own, of the run so far.
  std::map<std::string, double, std::less<>> counts;

  /// How often operations ran that have this name, or that `chosen` accepts.
  int64_t calls(std::string_view name) const;
  int64_t calls(const std::function<bool(const TracedOperation&)>& chosen) const;
  /// One operation of this name, or null if there was none.
  const TracedOperation* find(std::string_view name) const;
  /// What was posted under this label; 0 if nothing was.
  double count(std::string_view label) const;
};

// Convolutions are libtorch's, or kernels of ours. Ours are named trainopt::<how>_convolution and
// trainopt::<how>_convolution_backward, get the images as their first input, and multiply and add in float32 whatever
// type the images have in memory. The gradients of one convolution's weight and input are one operation.

/// Of an image batch (4-D), in the forward pass.
bool is_forward_convolution(const TracedOperation& operation);
/// One of ours, forward while training, or backward.
bool is_own_convolution(const TracedOperation& operation);
/// Calls of convolutions and matrix products, forward and backward, by the type of their numbers in memory:
/// "bfloat16" → calls.
std::map<std::string, int64_t> multiplications_by_type(const StepTrace& trace);

/// Records the operations of this thread, and of the backward threads that it starts, while it lives. That costs some
/// microseconds an operation, so it is done for one warm-up step only.
class StepObserver {
 public:
  explicit StepObserver(StepTrace::Operations& operations);
  ~StepObserver();
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;

 private:
  struct Tap;
  class Installed;
  std::shared_ptr<Tap> tap_;
  uint64_t callback_;
  std::unique_ptr<Installed> installed_;
};

}  // namespace trainopt
