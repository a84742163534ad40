#include "comm/meeting_wait.h"

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "comm/rendezvous.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <chrono>
#include <ctime>

namespace trainopt {
namespace {

/// The time of day, so many seconds ago.
std::string time_before(double seconds) {
  const auto then = std::chrono::system_clock::now() - std::chrono::duration<double>(seconds);
  const std::time_t time =
      std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::system_clock::duration>(then));
  std::tm local{};
  ::localtime_r(&time, &local);
  return fmt::format("{:%H:%M:%S}", local);
}

}  // namespace

std::string MeetingWait::variables() const {
  if (options_.variables.empty()) return "";
  return fmt::format("; the number of ranks and their place come from {}", fmt::join(options_.variables, " "));
}

void MeetingWait::still(const std::string& awaited) {
  constexpr double kEveryS = 60;
  const int stop = options_.stop ? options_.stop->load() : 0;
  if (is_signal(stop))
    throw UserError(fmt::format("stopped while waiting for {}", awaited), static_cast<ExitCode>(128 + stop));
  if (seconds() < next_warning_s_) return;
  log_warning("waiting for {} since {}, for at most {:g} s (parallel.timeout){}", awaited, time_before(seconds()),
              options_.timeout_s, variables());
  next_warning_s_ += kEveryS;
}

}  // namespace trainopt
