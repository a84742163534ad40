#include "run/version.h"

#include "device/process.h"

#include <fmt/format.h>
#include <torch/version.h>

namespace trainopt {

std::string version_text() {
  return fmt::format(
      "trainopt {}\n"
      "commit             {}\n"
      "libtorch           {}, compiled for {}\n"
      "GPU architectures  {}",
      kBuild.version, kBuild.commit, libtorch_version(), TORCH_VERSION, kBuild.gpu_architectures);
}

}  // namespace trainopt
