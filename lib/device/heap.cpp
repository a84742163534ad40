#include "device/heap.h"

#include <malloc.h>

namespace trainopt {

void keep_freed_heap(const std::map<std::string, std::string>& environment) {
  constexpr int kLargestBlock = 32 << 20, kNever = -1;
  const auto tunables = environment.find("GLIBC_TUNABLES");
  if (tunables != environment.end() && tunables->second.find("glibc.malloc.") != std::string::npos) return;
  for (const auto& [name, value] : environment)
    if (name.starts_with("MALLOC_")) return;
  ::mallopt(M_MMAP_THRESHOLD, kLargestBlock);
  ::mallopt(M_TRIM_THRESHOLD, kNever);
}

}  // namespace trainopt
