// What --version, records and checkpoints say of this program.
#pragma once

#include <string>

namespace trainopt {

struct BuildFacts {
  const char* version;
  const char* commit;             ///< 12 digits, with "+dirty" if files were changed; "unknown" outside a checkout
  const char* gpu_architectures;  ///< "7.5 8.0 12.0+PTX", or "none"
  const char* cuda_library;       ///< the build ID of libtrainopt_cuda.so; empty in a build without CUDA
};
extern const BuildFacts kBuild;  // written by the build

/// The lines of --version: version, commit, libtorch, GPU architectures.
std::string version_text();

}  // namespace trainopt
