#include "metrics/process_probe.h"

#include "device/process.h"

#include <unistd.h>

#include <cstdio>

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

}  // namespace trainopt
