#include "device/heap.h"

#include <malloc.h>

namespace trainopt {

void keep_freed_heap(const std::map<std::string, std::string>& environment) {
  constexpr int kLargestBlock = 32 << 20, kNever = -1;
  for (const char* variable : {"GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"})
    if (environment.contains(variable)) return;
  ::mallopt(M_MMAP_THRESHOLD, kLargestBlock);
  ::mallopt(M_TRIM_THRESHOLD, kNever);
}

}  // namespace trainopt
