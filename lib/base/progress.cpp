#include "base/progress.h"

#include <atomic>

namespace trainopt {
namespace {

std::atomic<uint64_t> pieces{0};

}  // namespace

void note_progress() noexcept { pieces.fetch_add(1, std::memory_order_relaxed); }
uint64_t progress_made() noexcept { return pieces.load(std::memory_order_relaxed); }

}  // namespace trainopt
