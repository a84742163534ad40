// Opens libtrainopt_cuda.so before main(), for tests of what needs CUDA's libraries but no driver and no GPU.
#pragma once

#include "base/error.h"
#include "device/cuda_library.h"

namespace trainopt {

inline const bool kAskedToOpenCuda = (open_cuda_library_without_driver(), true);

/// False only in a build without CUDA: a library that does not open must not skip what it is needed for.
inline bool cuda_is_open() {
  TRAINOPT_CHECK_EQUAL(cuda_table() != nullptr, built_for_cuda());
  return built_for_cuda();
}

}  // namespace trainopt
