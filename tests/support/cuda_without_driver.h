// Opens libtrainopt_cuda.so before main(), for tests of what needs CUDA's libraries but no driver and no GPU.
#pragma once

#include "device/cuda_library.h"

namespace trainopt {

inline const bool kCudaIsOpen = [] {
  open_cuda_library_without_driver();
  return cuda_table() != nullptr;
}();

}  // namespace trainopt
