// What memory is allocated for: every thread says what it is working on, and allocations are filed under it.
#pragma once

#include <string>

namespace trainopt {

enum class MemoryUse {
  parameters,
  gradients,    ///< of the parameters
  optimizer,    ///< its state
  activations,  ///< whatever the forward pass allocates
  batches,      ///< in the loader and on the device
  other         ///< gradients of activations, temporary memory, everything else
};

struct MemoryLabel {
  MemoryUse use = MemoryUse::other;
  const char* phase = "";             ///< "forward", "backward"
  const std::string* unit = nullptr;  ///< of the model; null outside units. Must outlive everything filed under it.

  bool operator==(const MemoryLabel&) const = default;
};

/// Files this thread's allocations under `label` during its lifetime; the innermost scope of a thread counts. Costs a
/// few nanoseconds. Memory that a GPU's backward thread allocates belongs to the scope of the thread that waits for it.
class MemoryScope {
 public:
  explicit MemoryScope(const MemoryLabel& label);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  /// This thread's pointer to the label of its innermost scope; without one, to the label `other`.
  static const MemoryLabel* const& current();

 private:
  MemoryLabel label_;
  const MemoryLabel* outer_;
};

}  // namespace trainopt
