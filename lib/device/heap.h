// The heap of the C library, in which CPU tensors lie unless an allocator of our own or a preloaded one takes its
// place.
#pragma once

#include <map>
#include <string>

namespace trainopt {

/// glibc's malloc returns the free end of its heap to the kernel. Where a step's tensors lie there, it does so in every
/// step, and the next one pays a page fault for each page again. After this call the main thread's heap never shrinks.
/// Heaps of other threads still do, and blocks above 32 MiB, the most that mallopt() accepts, still come from the
/// kernel each time. Does nothing if `environment`, that of this process, has settings of malloc.
void keep_freed_heap(const std::map<std::string, std::string>& environment);

}  // namespace trainopt
