#include "device/device.h"

#include "base/error.h"
#include "device/memory.h"
#include "device/process.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("device_facts describes the CPU") {
  const DeviceFacts facts = device_facts(at::kCPU);
  CHECK(!facts.name.empty());
  CHECK(facts.memory_bytes > int64_t{1} << 28);
  CHECK(facts.multiprocessors == allowed_cores());
  CHECK(facts.pci_bus_id.empty());
  CHECK(facts.sm_major == 0);
  CHECK(with_index(at::kCPU) == at::Device(at::kCPU));
  synchronize(at::kCPU);
}

TEST_CASE("the error for a missing GPU names it") {
  CHECK(cuda_available() == (cuda_count() > 0));
  CHECK_THROWS_WITH(device_facts(at::Device(at::kCUDA, 77)), ContainsSubstring("device cuda:77 is not available"));
}

TEST_CASE("host tensors have the requested shape, type, layout and alignment") {
  const at::Tensor image = host_tensor({2, 3, 5, 7}, at::kByte, at::MemoryFormat::ChannelsLast);
  CHECK(image.sizes() == at::IntArrayRef{2, 3, 5, 7});
  CHECK(image.is_contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(image.dtype() == at::kByte);
  CHECK(reinterpret_cast<uintptr_t>(image.data_ptr()) % 64 == 0);
  if (!cuda_available()) CHECK_THROWS_AS(host_tensor({16}, at::kFloat, at::MemoryFormat::Contiguous, true), UserError);
}

TEST_CASE("peak memory is this process's own and does not drop when memory is freed") {
  const double before = peak_memory_mib(c10::Device(c10::kCPU));
  CHECK(before > 1);
  {
    // Touched, so resident; more than the peak so far, however much of that has been freed since.
    const std::vector<char> large((static_cast<size_t>(before) + 128) << 20, 'x');
    CHECK(large.back() == 'x');
  }
  CHECK(peak_memory_mib(c10::Device(c10::kCPU)) > before + 100);
}

TEST_CASE("memory figures of the CPU are those of its tensors") {
  install_counting_allocator();
  const int64_t before = memory_stats(at::kCPU)->allocated;
  const at::Tensor tensor = at::empty({1000}, at::kFloat);
  const auto stats = memory_stats(at::kCPU).value();
  CHECK(stats.allocated == before + 4000);
  CHECK(stats.peak_allocated >= stats.allocated);
  CHECK(stats.capacity > int64_t{1} << 28);
  CHECK(!free_memory_bytes(at::kCPU));
}

TEST_CASE("errors of CUDA's libraries for lack of memory are recognised, others are not") {
  const auto thrown = [](const std::string& message) {
    try {
      TORCH_CHECK(false, message);
    } catch (const std::exception& error) {
      return is_out_of_memory(error);
    }
    return false;
  };
  CHECK(thrown("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"));
  CHECK(thrown("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"));
  CHECK(thrown("FIND was unable to find an engine to execute this computation"));
  CHECK_FALSE(thrown("CUDA error: an illegal memory access was encountered"));
  CHECK(is_out_of_memory(std::runtime_error("kernel launch failed: out of memory")));
  CHECK(is_out_of_memory(std::bad_alloc()));
  CHECK_FALSE(is_out_of_memory(std::runtime_error("kernel launch failed: invalid argument")));
}
