// Catch2's main for tests that need a GPU: without one they are skipped, not passed.
#define CATCH_CONFIG_RUNNER
#include "catch.h"
#include "device/cuda_library.h"
#include "device/device.h"
#include "run/version.h"

#include <cstdio>
#include <string>

int main(int argc, char* argv[]) {
  constexpr int kSkipped = 77;
  trainopt::open_cuda_library(trainopt::kBuild.cuda_library);
  if (const std::string& problem = trainopt::cuda_library_problem(); !problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    return 1;
  }
  if (!trainopt::cuda_available()) {
    std::fputs("skipped: no GPU that this build can use\n", stderr);
    return kSkipped;
  }
  return Catch::Session().run(argc, argv);
}
