#include "device/cuda_library.h"

#include "device/cuda_table.h"
#include "device/device.h"
#include "kernels/gelu/launch.h"
#include "support/catch.h"
#include "support/cuda_without_driver.h"

#include <c10/util/Exception.h>

using namespace trainopt;

TEST_CASE("a build for GPUs opens its library for them, also where there is none") {
  INFO(cuda_library_problem());
  CHECK((cuda_table() != nullptr) == built_for_cuda());
  CHECK(cuda_library_problem().empty());
  CHECK(start_cuda().built_for_cuda == built_for_cuda());
  CHECK((start_cuda().program_cuda > 0) == built_for_cuda());
}

TEST_CASE("exceptions keep their types across the border") {
  if (!cuda_is_open()) return;
  CHECK_THROWS_AS(gpu_facts(99), c10::Error);
  // Words of a fault, in an exception that is told apart by its type alone.
  const std::string words = "CUDA error: an illegal memory access was encountered";
  CHECK(gpu_fault(std::runtime_error(words)));
  CHECK_FALSE(gpu_fault(c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, words)));
  if (cuda_count() > 0) return;
  const auto& gelu = *cuda_table()->cuda_gelu_launches();
  CHECK_THROWS_AS(gelu.forward({.dtype = kernels::DType::float32, .tanh = false, .rows = 1, .width = 8}, nullptr),
                  std::runtime_error);
}
