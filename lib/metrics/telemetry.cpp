#include "metrics/telemetry.h"

#include "base/blocked_signals.h"
#include "device/device.h"
#include "device/process.h"
#include "metrics/format.h"

#include <spdlog/spdlog.h>

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <numeric>

namespace trainopt {
namespace {

/// Fourteen minutes at the default interval; for a longer step the mean covers its last part.
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

bool is_sampled(Metric metric) {
  return metric == Metric::cpu_util_pct || metric == Metric::other_cpu_pct || metric == Metric::process_rss_mib ||
         std::find(kGpuMetrics.begin(), kGpuMetrics.end(), metric) != kGpuMetrics.end();
}

std::string telemetry_line(double time_s, const Values& values) {
  std::string line = fmt::format("{{\"time_s\":{:.3f}", time_s);
  for (const MetricInfo& metric : kCatalogue) {
    if (!is_sampled(metric.metric)) continue;
    fmt::format_to(std::back_inserter(line), ",\"{}\":", metric.name);
    if (const auto& value = values[metric.metric]; value && std::isfinite(*value))
      append_number(line, metric, *value);
    else
      line += "null";
  }
  return line + "}\n";
}

}  // namespace

double combined(Aggregate aggregate, std::span<const double> values) {
  switch (aggregate) {
    case Aggregate::last:
      return values.back();
    case Aggregate::mean:
      return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    case Aggregate::max:
      return *std::max_element(values.begin(), values.end());
    case Aggregate::bits_or:
      return static_cast<double>(
          std::accumulate(values.begin(), values.end(), int64_t{0},
                          [](int64_t bits, double value) { return bits | std::llround(value); }));
  }
  return 0;
}

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

/// The state that the thread shares with the rest of the program.
class Telemetry::Watch {
 public:
  explicit Watch(TelemetryOptions settings) : options(std::move(settings)) {
    if (!options.file.empty()) file = std::make_unique<LineFile>(options.file);
  }
  void run();
  /// Adds `reason` to every metric of this thread that has none.
  void explain_absence(const std::string& reason);

  const TelemetryOptions options;
  std::unique_ptr<LineFile> file;  ///< used only by the thread until it has ended
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false, paused = false, ended = false;
  std::deque<TelemetrySample> samples;
  Reasons reasons;

 private:
  void sample_until_stopped();
  void take_sample(GpuProbe* gpu, ProcessProbe& process, Clock::time_point started);
};

void Telemetry::Watch::run() {
  pthread_setname_np(pthread_self(), "telemetry");
  try {
    sample_until_stopped();
  } catch (const std::exception& error) {  // telemetry may fail, training must not
    spdlog::warn("telemetry failed: {}", error.what());
    explain_absence(std::string("telemetry failed: ") + error.what());
  }
  const std::lock_guard lock(mutex);
  ended = true;
  wake.notify_all();
}

void Telemetry::Watch::sample_until_stopped() {
  std::unique_ptr<GpuProbe> gpu;
  if (!options.pci_bus_id.empty()) {
    gpu = std::make_unique<GpuProbe>(options.nvml_library, options.pci_bus_id);
  } else if (!options.device.is_cpu()) {
    gpu = std::make_unique<GpuProbe>(options.nvml_library, device_facts(options.device).pci_bus_id);
  } else {
    const std::lock_guard lock(mutex);
    for (const Metric metric : kGpuMetrics) reasons.emplace(info(metric).name, "the run uses no GPU");
    for (const Metric metric : {Metric::memory_allocated_mib, Metric::memory_reserved_mib})
      reasons.emplace(info(metric).name, "libtorch's CPU allocator keeps no statistics");
  }
  ProcessProbe process;
  const auto started = Clock::now();
  const auto interval = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.interval_s));
  for (auto due = started;; due = std::max(due + interval, Clock::now())) {
    take_sample(gpu.get(), process, started);
    std::unique_lock lock(mutex);
    wake.wait_until(lock, due + interval, [this] { return stopping || paused; });
    const bool was_paused = paused;
    wake.wait(lock, [this] { return stopping || !paused; });
    if (stopping) return;
    if (!was_paused) continue;
    process.restart_interval();  // excludes the load during the pause
    if (gpu) gpu->restart_interval();
  }
}

void Telemetry::Watch::take_sample(GpuProbe* gpu, ProcessProbe& process, Clock::time_point started) {
  TelemetrySample sample;
  process.sample(sample.values);
  if (gpu) gpu->sample(sample.values);
  sample.at = Clock::now();
  if (file) file->write(telemetry_line(milliseconds_between(started, sample.at) / 1e3, sample.values));
  const std::lock_guard lock(mutex);
  if (gpu) reasons = gpu->reasons();
  samples.push_back(sample);
  if (samples.size() > kSamplesKept) samples.pop_front();
}

void Telemetry::Watch::explain_absence(const std::string& reason) {
  const std::lock_guard lock(mutex);
  for (const MetricInfo& metric : kCatalogue)
    if (is_sampled(metric.metric)) reasons.emplace(metric.name, reason);
}

Telemetry::Telemetry(TelemetryOptions options) : watch_(std::make_shared<Watch>(std::move(options))) {
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([watch = watch_] { watch->run(); });
  } catch (const std::system_error& error) {
    spdlog::warn("no telemetry: {}", error.what());
    watch_->explain_absence(std::string("no telemetry thread: ") + error.what());
  }
}

Telemetry::~Telemetry() { stop(); }

void Telemetry::pause() {
  const std::lock_guard lock(watch_->mutex);
  watch_->paused = true;
  watch_->wake.notify_all();
}

void Telemetry::resume() {
  const std::lock_guard lock(watch_->mutex);
  watch_->paused = false;
  watch_->wake.notify_all();
}

void Telemetry::stop() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(watch_->mutex);
  watch_->stopping = true;
  watch_->wake.notify_all();
  const bool ended = watch_->wake.wait_for(lock, std::chrono::duration<double>(watch_->options.stop_timeout_s),
                                           [this] { return watch_->ended; });
  lock.unlock();
  if (!ended) {
    spdlog::warn("telemetry is abandoned: the GPU's driver does not respond");
    return thread_.detach();
  }
  thread_.join();
  if (watch_->file) watch_->file->flush();
}

int64_t Telemetry::dropped_lines() const {
  const std::lock_guard lock(watch_->mutex);
  return watch_->ended && watch_->file ? watch_->file->dropped_lines() : 0;
}

TelemetrySample Telemetry::between(Clock::time_point begin, Clock::time_point end) const {
  TelemetrySample result;
  result.at = end;
  const std::lock_guard lock(watch_->mutex);
  const auto& samples = watch_->samples;
  const auto before = [](const TelemetrySample& sample, Clock::time_point time) { return sample.at < time; };
  auto first = std::lower_bound(samples.begin(), samples.end(), begin, before);
  const auto last = std::lower_bound(first, samples.end(), end, before);
  if (first == last) {
    if (first == samples.begin()) return result;
    --first;
  }
  std::vector<double> values;
  for (const MetricInfo& metric : kCatalogue) {
    values.clear();
    for (auto sample = first; sample != last; ++sample)
      if (const auto& value = sample->values[metric.metric]) values.push_back(*value);
    if (!values.empty()) result.values[metric.metric] = combined(metric.aggregate, values);
  }
  return result;
}

void Telemetry::fill(StepRecord& row) const {
  const TelemetrySample sample = between(row.began, row.ended);
  for (const MetricInfo& metric : kCatalogue)
    if (!row[metric.metric]) row[metric.metric] = sample.values[metric.metric];
}

Reasons Telemetry::reasons() const {
  const std::lock_guard lock(watch_->mutex);
  return watch_->reasons;
}

}  // namespace trainopt
