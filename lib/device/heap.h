// The heap of the C library, in which CPU tensors lie unless an allocator of our own or a preloaded one takes its
// place.
#pragma once

#include <map>
#include <string>

namespace trainopt {

/// glibc's malloc returns the free end of its heap to the kernel. Where a step's tensors lie there, it does so in every
/// step, and the next one pays a page fault for each page again. After this call the heap stays. Blocks above 32 MiB,
/// the most that mallopt() accepts, still come from the kernel each time. Does nothing if `environment`, that of this
/// process, has a setting of its own.
void keep_freed_heap(const std::map<std::string, std::string>& environment);

}  // namespace trainopt
