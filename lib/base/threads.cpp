#include "base/threads.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <fstream>
#include <system_error>

namespace trainopt {
namespace {

/// The file's first word; "unlimited" if there is no such limit.
std::string limit_in(const char* file) {
  std::string word;
  std::ifstream(file) >> word;
  return word.empty() || word == "max" ? "unlimited" : word;
}

}  // namespace

bool is_out_of_threads(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  return system && system->code() == std::errc::resource_unavailable_try_again;
}

std::string out_of_threads_text() {
  rlimit of_user{};
  const bool limited = ::getrlimit(RLIMIT_NPROC, &of_user) == 0 && of_user.rlim_cur != RLIM_INFINITY;
  return fmt::format(
      "no more threads can be started; the limits are {} for this user (ulimit -u), {} for this control group "
      "(pids.max) and {} for the machine",
      limited ? fmt::format("{}", of_user.rlim_cur) : "unlimited", limit_in("/sys/fs/cgroup/pids.max"),
      limit_in("/proc/sys/kernel/threads-max"));
}

}  // namespace trainopt
