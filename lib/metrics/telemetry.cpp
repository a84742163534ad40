#include "metrics/telemetry.h"

#include "base/deaf_threads.h"
#include "device/device.h"
#include "device/process.h"
#include "metrics/format.h"

#include <spdlog/spdlog.h>

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace trainopt {
namespace {

/// Fourteen minutes at the default interval; a longer step has the mean of its last part.
constexpr size_t kSamplesKept = 8192;

std::optional<double> resident_mib() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (!file) return std::nullopt;
  long total = 0, resident = 0;
  const int found = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  if (found != 2) return std::nullopt;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / 0x1p20;
}

bool measured_here(Metric metric) {
  return metric == Metric::cpu_util_pct || metric == Metric::other_cpu_pct || metric == Metric::process_rss_mib ||
         std::find(kGpuMetrics.begin(), kGpuMetrics.end(), metric) != kGpuMetrics.end();
}

std::string telemetry_line(double time_s, const Values& values) {
  std::string line = fmt::format("{{\"time_s\":{:.3f}", time_s);
  for (const MetricInfo& metric : kCatalogue) {
    if (!measured_here(metric.metric)) continue;
    fmt::format_to(std::back_inserter(line), ",\"{}\":", metric.name);
    if (const auto& value = values[metric.metric]; value && std::isfinite(*value)) append_number(line, metric, *value);
    else line += "null";
  }
  return line + "}\n";
}

}  // namespace

ProcessProbe::ProcessProbe() : ProcessProbe(allowed_cpus()) {}

ProcessProbe::ProcessProbe(const std::vector<int>& cpus)
    : cores_(allowed_cores()), looked_at_(Clock::now()), cpu_seconds_(process_cpu_seconds()),
      others_(cpus.size(), [cpus] { return busy_seconds(cpus); }, cpu_seconds_, looked_at_) {}

void ProcessProbe::sample(Values& values) {
  const auto now = Clock::now();
  const double cpu_seconds = process_cpu_seconds();
  const double seconds = milliseconds_between(looked_at_, now) / 1e3;
  // Over a shorter stretch the scheduler decides the number, not the program.
  if (seconds >= 0.01) {
    values[Metric::cpu_util_pct] = 100 * (cpu_seconds - cpu_seconds_) / (seconds * cores_);
    looked_at_ = now;
    cpu_seconds_ = cpu_seconds;
  }
  values[Metric::other_cpu_pct] = others_.sample(cpu_seconds, now);
  values[Metric::process_rss_mib] = resident_mib();
}

Telemetry::Telemetry(TelemetryOptions options) : options_(std::move(options)) {
  if (!options_.file.empty()) file_ = std::make_unique<LineFile>(options_.file);
  const DeafThreads deaf;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    spdlog::warn("no telemetry: {}", error.what());
    for (const MetricInfo& metric : kCatalogue)
      if (measured_here(metric.metric)) reasons_.emplace(metric.name, std::string("no thread for telemetry: ") + error.what());
  }
}

Telemetry::~Telemetry() { stop(); }

void Telemetry::pause() {
  const std::lock_guard lock(mutex_);
  paused_ = true;
  wake_.notify_all();
}

void Telemetry::resume() {
  const std::lock_guard lock(mutex_);
  paused_ = false;
  wake_.notify_all();
}

void Telemetry::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (file_) file_->flush();
}

void Telemetry::run() {
  pthread_setname_np(pthread_self(), "telemetry");
  try {
    std::unique_ptr<GpuProbe> gpu;
    if (options_.device.is_cpu()) {
      const std::lock_guard lock(mutex_);
      for (const Metric metric : kGpuMetrics) reasons_.emplace(info(metric).name, "the run uses no GPU");
      for (const Metric metric : {Metric::memory_allocated_mib, Metric::memory_reserved_mib})
        reasons_.emplace(info(metric).name, "libtorch's CPU allocator keeps no figures");
    } else {
      gpu = std::make_unique<GpuProbe>(options_.nvml_library, device_facts(options_.device).pci_bus_id);
    }
    ProcessProbe process;
    const auto started = Clock::now();
    const auto interval = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.interval_s));
    for (auto due = started;; due = std::max(due + interval, Clock::now())) {
      take_sample(gpu.get(), process, started);
      std::unique_lock lock(mutex_);
      wake_.wait_until(lock, due + interval, [this] { return stopping_ || paused_; });
      wake_.wait(lock, [this] { return stopping_ || !paused_; });
      if (stopping_) return;
    }
  } catch (const std::exception& error) {   // a thread boundary: telemetry may end, training may not
    spdlog::warn("telemetry ended: {}", error.what());
  }
}

void Telemetry::take_sample(GpuProbe* gpu, ProcessProbe& process, Clock::time_point started) {
  TelemetrySample sample;
  process.sample(sample.values);
  if (gpu) gpu->sample(sample.values);
  sample.at = Clock::now();
  if (file_) file_->write(telemetry_line(milliseconds_between(started, sample.at) / 1e3, sample.values));
  const std::lock_guard lock(mutex_);
  if (gpu) reasons_ = gpu->reasons();
  samples_.push_back(sample);
  if (samples_.size() > kSamplesKept) samples_.pop_front();
}

TelemetrySample Telemetry::between(Clock::time_point begin, Clock::time_point end) const {
  TelemetrySample result;
  result.at = end;
  const std::lock_guard lock(mutex_);
  const auto before = [](const TelemetrySample& sample, Clock::time_point time) { return sample.at < time; };
  auto first = std::lower_bound(samples_.begin(), samples_.end(), begin, before);
  const auto last = std::lower_bound(first, samples_.end(), end, before);
  if (first == last) {
    if (first == samples_.begin()) return result;
    --first;
  }
  for (const MetricInfo& metric : kCatalogue) {
    double sum = 0, largest = 0;
    int count = 0;
    for (auto sample = first; sample != last; ++sample)
      if (const auto& value = sample->values[metric.metric]) {
        sum += *value;
        largest = count == 0 ? *value : std::max(largest, *value);
        ++count;
      }
    if (count > 0) result.values[metric.metric] = metric.aggregate == Aggregate::max ? largest : sum / count;
  }
  return result;
}

void Telemetry::fill(Row& row) const {
  const TelemetrySample sample = between(row.began, row.ended);
  for (const MetricInfo& metric : kCatalogue)
    if (!row[metric.metric]) row[metric.metric] = sample.values[metric.metric];
}

Reasons Telemetry::reasons() const {
  const std::lock_guard lock(mutex_);
  return reasons_;
}

}  // namespace trainopt
