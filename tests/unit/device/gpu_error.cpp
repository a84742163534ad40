#include "device/gpu_error.h"

#include "device/device.h"
#include "device/memory.h"
#include "support/catch.h"
#include "support/cuda_without_driver.h"

#include <c10/util/Exception.h>

using namespace trainopt;

namespace {

/// As libtorch throws an error of CUDA's runtime.
c10::AcceleratorError cuda_error(int code, const std::string& text) {
  return {{__func__, __FILE__, __LINE__}, code, "CUDA error: " + text + "\nSearch for `cudaError…' in CUDA's manual."};
}

}  // namespace

TEST_CASE("errors after which CUDA is lost are recognised by their code, with whose fault it is") {
  if (!cuda_is_open()) return;
  struct Case {
    int code;
    bool hardware;
  };
  for (const Case expected : {Case{700, false},
                              {710, false},
                              {716, false},
                              {719, false},
                              {702, false},
                              {715, false},
                              {717, false},
                              {718, false},
                              {714, false},
                              {214, true},
                              {220, true},
                              {226, true},
                              {46, true},
                              {100, true},
                              {999, true}}) {
    INFO(expected.code);
    const auto error = cuda_error(expected.code, "any words");
    const auto fault = gpu_fault(error);
    REQUIRE(fault);
    CHECK(fault->code == expected.code);
    CHECK(fault->hardware == expected.hardware);
    CHECK(!fault->text.empty());
    CHECK(is_gpu_lost(error));
    CHECK_FALSE(is_out_of_memory(error));
    const GpuLost lost(*fault, "in step 3, on cuda:1");
    CHECK(lost.code() == (expected.hardware ? ExitCode::hardware : ExitCode::bug));
    CHECK_THAT(lost.what(), ContainsSubstring("context is lost") && ContainsSubstring("in step 3, on cuda:1") &&
                                ContainsSubstring(fault->text) && !ContainsSubstring("\n"));
  }
}

TEST_CASE("faults are recognised in the words of other libraries") {
  if (!cuda_is_open()) return;
  const auto code_of = [](const std::string& message) {
    const auto fault = gpu_fault(std::runtime_error(message));
    return fault ? fault->code : 0;
  };
  CHECK(code_of("kernel launch failed: an illegal memory access was encountered") == 700);
  CHECK(code_of("NCCL error: Cuda failure 716 'misaligned address'") == 716);
  CHECK(code_of("CUDA driver error: uncorrectable ECC error encountered") == 214);
  CHECK(code_of("unspecified launch failure") == 719);
  CHECK(code_of("device-side assert triggered") == 710);
  // A message with the words of a lack of memory too, as after a recording that could not be ended.
  CHECK_FALSE(is_out_of_memory(
      std::runtime_error("unable to find an engine to execute this computation: an illegal memory access was "
                         "encountered")));
}

TEST_CASE("errors after which CUDA still works are no faults") {
  CHECK_FALSE(gpu_fault(cuda_error(2, "out of memory")));
  CHECK_FALSE(gpu_fault(cuda_error(1, "invalid argument")));
  CHECK_FALSE(gpu_fault(cuda_error(901, "operation failed due to a previous error during capture")));
  CHECK_FALSE(gpu_fault(std::runtime_error("kernel launch failed: invalid argument")));
  CHECK_FALSE(gpu_fault(UserError("a sentence")));
  CHECK_FALSE(gpu_fault(std::bad_alloc()));
  CHECK(is_out_of_memory(std::runtime_error("unable to find an engine to execute this computation")));
}

TEST_CASE("opening the CPU does nothing") { CHECK_NOTHROW(open_device(at::kCPU)); }

TEST_CASE("every problem with a GPU says what to do") {
  for (const auto problem :
       {GpuProblem::old_driver, GpuProblem::no_gpu, GpuProblem::no_permission, GpuProblem::not_ready,
        GpuProblem::version_mismatch, GpuProblem::stub_library, GpuProblem::mps, GpuProblem::unlicensed,
        GpuProblem::busy, GpuProblem::out_of_memory, GpuProblem::other})
    CHECK(!remedy(problem).empty());
  CHECK(gpu_label(at::Device(at::kCUDA, 1), "NVIDIA H100", "GPU-5b0c") == "cuda:1, NVIDIA H100, GPU-5b0c");
  CHECK(gpu_label(at::kCPU, "", "") == "cpu");
}

TEST_CASE("a GPU that cannot be opened is named, with the reason and what to do") {
  if (!cuda_is_open()) return;
  const auto failure = [](int code) { return opening_failed(start_error(code), "cuda:1, NVIDIA H100, GPU-5b0c"); };
  CHECK(start_error(0).problem == GpuProblem::none);
  const UserError busy = failure(46);
  CHECK(busy.code() == ExitCode::recipe);
  CHECK_THAT(busy.what(), ContainsSubstring("busy or unavailable") && ContainsSubstring("device: cuda:N") &&
                              ContainsSubstring("nvidia-smi -c DEFAULT") && ContainsSubstring("cuda:1, NVIDIA H100"));
  const UserError full = failure(2);
  CHECK(full.code() == ExitCode::memory);
  CHECK_THAT(full.what(), ContainsSubstring("no memory is left for a CUDA context"));
  CHECK_THAT(failure(214).what(), ContainsSubstring("ECC") && ContainsSubstring("reset the GPU"));  // lost or broken
  CHECK_THAT(failure(999).what(), ContainsSubstring("reset the GPU"));
}
