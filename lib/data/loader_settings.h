// How batches are loaded, as it takes effect. Training and evaluation read the same settings.
#pragma once

#include <cstdint>

namespace trainopt {

struct LoaderSettings {
  int64_t num_workers = 0;                  ///< threads; 0: the thread that asks for a batch loads it
  int64_t prefetch_factor = 2;              ///< batches kept ready per worker
  bool persistent_workers = false;          ///< false: threads end, and prefetching stops, at each epoch's end
  bool pin_memory = false;                  ///< buffers are page-locked
  bool non_blocking = false;                ///< copies run on a stream of their own; needs pin_memory
  int64_t memory_limit = int64_t{4} << 30;  ///< bytes of all buffers; on the CPU also of a DeviceDataset
  bool finish_on_device = false;            ///< images cross as uint8; scaling and normalising happen on the device
  bool resize_on_device = false;  ///< with finish_on_device: so do the resize and what follows it, where the transforms
                                  ///< allow it (device_resize_refusal())
};

}  // namespace trainopt
