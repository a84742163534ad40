#include "device/cuda_library.h"

#include "device/device.h"
#include "device/facts.h"
#include "support/catch.h"
#include "support/cuda_without_driver.h"

#include <c10/util/Exception.h>

using namespace trainopt;

TEST_CASE("a build for GPUs opens its library for them, also where there is none") {
  INFO(cuda_library_problem());
  CHECK(kCudaIsOpen == built_for_cuda());
  CHECK(cuda_library_problem().empty());
  CHECK(start_cuda().built_for_cuda == built_for_cuda());
  CHECK((start_cuda().program_cuda > 0) == built_for_cuda());
}

TEST_CASE("exceptions of the library keep their types, and those of the program are recognised in it") {
  if (!kCudaIsOpen) return;
  CHECK_THROWS_AS(gpu_facts(99), c10::Error);
  const c10::OutOfMemoryError memory({__func__, __FILE__, __LINE__}, "CUDA error: out of memory");
  CHECK_FALSE(gpu_fault(memory));
  CHECK_FALSE(gpu_fault(UserError("an illegal memory access was not encountered")));
  CHECK(gpu_fault(std::runtime_error("NCCL: an illegal memory access was encountered")));
}
