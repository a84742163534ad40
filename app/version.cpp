#include "app/version.h"

#include <fmt/format.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

namespace trainopt {
namespace {

/// Of the library that was loaded, which may differ from the headers': a byte each for major, minor and patch.
std::string loaded_libtorch() {
  const uint64_t version = aoti_torch_abi_version();
  return fmt::format("{}.{}.{}", version >> 56, version >> 48 & 0xff, version >> 40 & 0xff);
}

}  // namespace

std::string version_text() {
  return fmt::format(
      "trainopt {}\n"
      "commit             {}\n"
      "libtorch           {}, compiled for {}\n"
      "GPU architectures  {}",
      kBuild.version, kBuild.commit, loaded_libtorch(), TORCH_VERSION, kBuild.gpu_architectures);
}

}  // namespace trainopt
