#include "device/device_allocator.h"

#include "base/error.h"
#include "device/process.h"
#include "support/catch.h"

#include <c10/core/AllocatorConfig.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

using namespace trainopt;

namespace {

/// Whether `check` holds in a child process with these variables. libtorch reads its settings once per process.
bool holds_with(const std::map<std::string, std::string>& environment, const std::function<bool()>& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto name : kDeviceAllocatorVariables) ::unsetenv(std::string(name).c_str());
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::_exit(check() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status == 0;
}

}  // namespace

TEST_CASE("libtorch reads the settings that are in the environment when it first needs one") {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  ProcessSettings process;
  set_device_allocator(process, "expandable_segments:True,roundup_power2_divisions:8");
  CHECK(holds_with({}, [&] {
    apply(process);
    return device_allocator_settings() == "expandable_segments:True,roundup_power2_divisions:8" &&
           Config::use_expandable_segments() && Config::roundup_power2_divisions(3 << 20) == 8;
  }));
  CHECK(holds_with({}, [] { return device_allocator_settings().empty() && !Config::use_expandable_segments(); }));
  CHECK(holds_with({}, [&] {
    device_allocator_settings();
    apply(process);  // too late
    return device_allocator_settings().empty() && !Config::use_expandable_segments();
  }));
}

TEST_CASE("if both variables are set, libtorch reads the first of kDeviceAllocatorVariables") {
  const std::string first(kDeviceAllocatorVariables[0]), second(kDeviceAllocatorVariables[1]);
  const auto reads = [](const std::string& settings) {
    return [settings] { return device_allocator_settings() == settings; };
  };
  CHECK(holds_with({{first, "max_split_size_mb:64"}, {second, "expandable_segments:True"}},
                   reads("max_split_size_mb:64")));
  CHECK(holds_with({{second, "expandable_segments:True"}}, reads("expandable_segments:True")));
}

TEST_CASE("settings in the environment are neither dropped nor used instead of the recipe's") {
  ProcessSettings process;
  set_device_allocator(process, "expandable_segments:True");
  CHECK_NOTHROW(require_no_contradiction(process, {{"PYTORCH_ALLOC_CONF", "expandable_segments:True"}}));
  for (const auto name : kDeviceAllocatorVariables)
    CHECK_THROWS_WITH(
        require_no_contradiction(process, {{std::string(name), "max_split_size_mb:64"}}),
        Catch::Matchers::EndsWith(std::string(name) + "=max_split_size_mb:64, the run sets expandable_segments:True"));
}

TEST_CASE("settings that only the environment has are reported") {
  const std::map<std::string, std::string> environment{{"PYTORCH_ALLOC_CONF", "expandable_segments:True"}};
  ProcessSettings process;
  CHECK(allocator_variables_only_in(environment, process) ==
        std::vector<std::string>{"PYTORCH_ALLOC_CONF=expandable_segments:True"});
  CHECK(allocator_variables_only_in({}, process).empty());
  set_device_allocator(process, "expandable_segments:True");
  CHECK(allocator_variables_only_in(environment, process).empty());
}

TEST_CASE("a job that is compared may not find its own settings in the environment of the others") {
  const std::map<std::string, std::string> environment{{"PYTORCH_ALLOC_CONF", "expandable_segments:True"}};
  ProcessSettings process;
  CHECK_NOTHROW(require_settings_of_this_job_only(process, environment));
  set_device_allocator(process, "expandable_segments:True");
  CHECK_NOTHROW(require_settings_of_this_job_only(process, {{"HOME", "/"}}));
  CHECK_THROWS_WITH(require_settings_of_this_job_only(process, environment),
                    Catch::Matchers::EndsWith("unset the variable: PYTORCH_ALLOC_CONF=expandable_segments:True"));
}
