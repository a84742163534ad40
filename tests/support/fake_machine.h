// A machine whose fake NVML (support/fake_nvml) plays a script, which can change at any time.
#pragma once

#include "support/temporary_folder.h"

#include <cstdlib>

namespace trainopt::test {

class FakeMachine {
 public:
  explicit FakeMachine(const std::string& script) {
    play(script);
    ::setenv("FAKE_NVML_SCRIPT", (folder_ / "script").c_str(), 1);
  }
  ~FakeMachine() { ::unsetenv("FAKE_NVML_SCRIPT"); }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  void play(const std::string& script) const {
    std::ofstream(folder_ / "next") << script;
    std::filesystem::rename(folder_ / "next", folder_ / "script");
  }
  /// Calls of `function`, or of all functions.
  int64_t calls(const std::string& function = "") const {
    std::istringstream lines(folder_.text("script.calls"));
    int64_t count = 0;
    for (std::string line; std::getline(lines, line);) count += function.empty() || line == function;
    return count;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace trainopt::test
