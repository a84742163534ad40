#include "app/version.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

namespace trainopt {
namespace {

/// Of the library that was loaded, which may differ from the headers': from its list of build settings "NAME=VALUE, ".
std::string loaded_libtorch() {
  const std::string settings = at::show_config(), name = "TORCH_VERSION=";
  const size_t at = settings.find(name);
  if (at == std::string::npos) return "unknown";
  const size_t begin = at + name.size();
  return settings.substr(begin, settings.find_first_of(", \n", begin) - begin);
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
