#include "device/memory_label.h"

namespace trainopt {
namespace {

constexpr MemoryLabel kUnlabelled;
thread_local const MemoryLabel* innermost_label = &kUnlabelled;

}  // namespace

MemoryScope::MemoryScope(const MemoryLabel& label) : label_(label), outer_(innermost_label) {
  innermost_label = &label_;
}

MemoryScope::~MemoryScope() { innermost_label = outer_; }

const MemoryLabel* const& MemoryScope::current() { return innermost_label; }

}  // namespace trainopt
