#include "device/cuda_library.h"

#include "base/files/program_files.h"
#include "device/cuda_table.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace trainopt {
namespace {

constexpr const char* kLibrary = "libtrainopt_cuda.so";

const CudaTable* table = nullptr;

std::string& problem() {
  static std::string text;
  return text;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// dlopen()'s words name the library that is missing or does not fit.
std::string why_not_loaded(const std::string& words) {
  return fmt::format(
      "trainopt's library for GPUs cannot be loaded; install PyTorch {} for CUDA {}, with which this trainopt was "
      "built: {}",
      TRAINOPT_TORCH_VERSION, TRAINOPT_CUDA_VERSION, one_line(words));
}

std::string& expected_build_id() {
  static std::string id;
  return id;
}

/// Returns why not; empty on success.
std::string open() {
  const std::filesystem::path path = library_of_program(kLibrary);
  if (path.empty())
    return fmt::format("trainopt's library for GPUs is missing; build or install trainopt again: no {}", kLibrary);
  const std::string& expected = expected_build_id();
  if (!expected.empty() && build_id_of(path) != expected)
    return fmt::format(
        "trainopt's library for GPUs is damaged or of another build; delete it and build or install trainopt again: {}",
        path.string());
  // Global: libtorch and its profiler look up CUDA's functions by name. Now: a missing symbol must be found here.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) return why_not_loaded(::dlerror());
  table = static_cast<const CudaTable*>(::dlsym(library, kCudaTable));
  return table ? "" : why_not_loaded(::dlerror());
}

}  // namespace

bool built_for_cuda() { return TRAINOPT_FOR_CUDA; }

void open_cuda_library(const std::string& build_id) noexcept {
  expected_build_id() = build_id;
  if (built_for_cuda() && ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) open_cuda_library_without_driver();
}

void open_cuda_library_without_driver() noexcept {
  if (built_for_cuda() && !table) problem() = open();
}

const CudaTable* cuda_table() { return table; }

const std::string& cuda_library_problem() { return problem(); }

}  // namespace trainopt
