// The effective settings of batch loading, shared by training and evaluation.
#pragma once

#include <cstdint>

namespace trainopt {

struct LoaderSettings {
  int64_t num_workers = 0;                  ///< threads; 0: the thread that calls next() loads the batch
  int64_t prefetch_factor = 2;              ///< batches prefetched per worker
  bool persistent_workers = false;          ///< false: threads end, and prefetching stops, at each epoch's end
  bool pin_memory = false;                  ///< buffers are page-locked
  bool non_blocking = false;                ///< copies run on a separate stream; needs pin_memory
  int64_t memory_limit = int64_t{4} << 30;  ///< bytes of all buffers; on the CPU also limits a DeviceDataset
  bool finish_on_device = false;            ///< images are copied as uint8, then scaled and normalised on the device
  bool resize_on_device = false;  ///< with finish_on_device: also the resize and the transforms after it, if the
                                  ///< transforms allow it (device_resize_refusal())
};

}  // namespace trainopt
