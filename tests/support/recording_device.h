// An accelerator that does not exist. It is registered with libtorch as the device type that is kept free for other
// hardware, so lib/device's streams and events, and the operations on tensors, take the path they take on a GPU.
// Operations run at once in host memory, but no order is assumed that was not asked for: a stream's work counts as
// running until something has waited for it, and an event is ready only when the host knows it. Every stream, event,
// access and allocation is reported to a HappensBefore.
#pragma once

#include "support/happens_before.h"

#include <c10/core/Device.h>

#include <functional>

namespace trainopt::test {

/// Registers the device, once per process.
c10::Device recording_device();

/// Runs `work` on this thread, with no memory of earlier accesses, and returns what it did. The device must be idle.
HappensBefore recorded_accesses(const std::function<void()>& work);

/// The host, outside libtorch, writes these bytes. May be called by any thread.
void host_writes(const std::string& what, const void* data, int64_t bytes);

/// Allocations that reused a block that had been freed before, since recorded_accesses() began.
int64_t reused_blocks();

}  // namespace trainopt::test
