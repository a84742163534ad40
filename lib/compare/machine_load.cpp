#include "compare/machine_load.h"

#include "base/files.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

namespace trainopt {
namespace {

double busy_now() {
  std::string text;
  try {
    text = read_file("/proc/stat", ExitCode::bug);
  } catch (const UserError&) {   // named recovery: a machine that does not say shows no other load
  }
  return busy_cpu_seconds(text, static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

}  // namespace

double busy_cpu_seconds(std::string_view proc_stat, double ticks_per_second) {
  std::istringstream line{std::string(proc_stat.substr(0, proc_stat.find('\n')))};
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft_interrupts = 0, stolen = 0;
  line >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft_interrupts >> stolen;
  return name == "cpu" ? (user + nice + system + interrupts + soft_interrupts + stolen) / ticks_per_second : 0;
}

double own_cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

MachineLoad::MachineLoad() : cores_(static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN))), busy_s_(busy_now()), looked_at_(Clock::now()) {}

double MachineLoad::others_pct(double ours) {
  const double busy = busy_now();
  const auto now = Clock::now();
  const double elapsed = milliseconds_between(std::exchange(looked_at_, now), now) * 1e-3;
  const double others = busy - std::exchange(busy_s_, busy) - ours;
  return elapsed > 0 ? std::max(0.0, 100 * others / (elapsed * cores_)) : 0;
}

}  // namespace trainopt
