#include "metrics/hardware/process_probe.h"

#include "device/process.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

namespace trainopt {
namespace {

std::optional<double> resident_mib() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (!file) return std::nullopt;
  long total = 0, resident = 0;
  const int found = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  if (found != 2) return std::nullopt;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / 0x1p20;
}

}  // namespace

ProcessProbe::ProcessProbe() : ProcessProbe(allowed_cpus()) {}

ProcessProbe::ProcessProbe(const std::vector<int>& cpus)
    : cores_(allowed_cores()),
      sampled_at_(Clock::now()),
      cpu_seconds_(process_cpu_seconds()),
      others_(
          cpus.size(), [cpus] { return busy_seconds(cpus); }, cpu_seconds_, sampled_at_) {}

void ProcessProbe::restart_interval() {
  sampled_at_ = Clock::now();
  cpu_seconds_ = process_cpu_seconds();
}

void ProcessProbe::sample(Values& values) {
  const auto now = Clock::now();
  const double cpu_seconds = process_cpu_seconds();
  const double seconds = milliseconds_between(sampled_at_, now) / 1e3;
  // Over a shorter time the value reflects the scheduler rather than the program.
  if (seconds >= 0.01) {
    values[Metric::cpu_util_pct] = 100 * (cpu_seconds - cpu_seconds_) / (seconds * cores_);
    sampled_at_ = now;
    cpu_seconds_ = cpu_seconds;
  }
  values[Metric::other_cpu_pct] = others_.sample(cpu_seconds, now);
  values[Metric::process_rss_mib] = resident_mib();
}

namespace {

/// /proc/stat counts in hundredths of a second, which over half a second is 2 % of one CPU.
constexpr double kMinInterval = 0.5;

}  // namespace

std::optional<double> busy_seconds(std::string_view proc_stat, const std::vector<int>& cpus, double ticks_per_second) {
  std::istringstream lines{std::string(proc_stat)};
  double ticks = 0;
  size_t found = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft_interrupts = 0, stolen = 0;
    words >> name;
    if (!name.starts_with("cpu") || name.size() == 3) continue;
    if (std::find(cpus.begin(), cpus.end(), std::stoi(name.substr(3))) == cpus.end()) continue;
    if (!(words >> user >> nice >> system >> idle >> waiting >> interrupts >> soft_interrupts >> stolen))
      return std::nullopt;
    ticks += user + nice + system + interrupts + soft_interrupts + stolen;
    ++found;
  }
  if (found == 0 || found != cpus.size()) return std::nullopt;
  return ticks / ticks_per_second;
}

std::optional<double> busy_seconds(const std::vector<int>& cpus) {
  std::ifstream file("/proc/stat");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return busy_seconds(text, cpus, static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

double process_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

OtherLoad::OtherLoad(size_t cpus, Busy busy, double own_seconds, Clock::time_point now)
    : cpus_(static_cast<double>(cpus)),
      busy_(std::move(busy)),
      own_seconds_(own_seconds),
      sampled_at_(now),
      busy_seconds_(busy_()) {}

std::optional<double> OtherLoad::sample(double own_seconds, Clock::time_point now) {
  const double seconds = milliseconds_between(sampled_at_, now) / 1e3;
  if (seconds < kMinInterval) return pct_;
  const auto busy = busy_();
  pct_.reset();
  // The two clocks are read one after the other, so an idle machine can come out slightly below 0.
  if (busy && busy_seconds_)
    pct_ = std::max(0.0, 100 * (*busy - *busy_seconds_ - (own_seconds - own_seconds_)) / (seconds * cpus_));
  sampled_at_ = now;
  busy_seconds_ = busy;
  own_seconds_ = own_seconds;
  return pct_;
}

}  // namespace trainopt
