#include "device/memory_snapshot.h"

namespace trainopt {

void record_gpu_memory_history(size_t) {}
void end_gpu_memory_history() {}
std::string gpu_memory_snapshot() { return {}; }

}  // namespace trainopt
