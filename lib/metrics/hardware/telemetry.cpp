#include "metrics/hardware/telemetry.h"

#include "base/log.h"
#include "base/signals.h"
#include "device/device.h"
#include "metrics/format.h"
#include "metrics/hardware/nvml.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>

namespace trainopt {
namespace {

/// Fourteen minutes at the default interval; for a longer step the mean covers its last part.
constexpr size_t kSamplesKept = 8192;

bool is_sampled(Metric metric) {
  return metric == Metric::cpu_util_pct || metric == Metric::other_cpu_pct || metric == Metric::process_rss_mib ||
         metric == Metric::energy_j || std::find(kGpuMetrics.begin(), kGpuMetrics.end(), metric) != kGpuMetrics.end();
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
    case Aggregate::sum:
      return std::accumulate(values.begin(), values.end(), 0.0);
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
  std::deque<TelemetrySample> energy;  ///< samples with energy_j that no row has got yet
  std::optional<EnergySource> energy_source;
  Reasons reasons;

 private:
  struct Probes {
    std::unique_ptr<GpuProbe> gpu;
    std::unique_ptr<EnergyMeter> energy;
  };
  Probes open_probes();
  void sample_until_stopped();
  void take_sample(Probes& probes, ProcessProbe& process, Clock::time_point started);
};

void Telemetry::Watch::run() {
  pthread_setname_np(pthread_self(), "telemetry");
  try {
    sample_until_stopped();
  } catch (const std::exception& error) {  // telemetry may fail, training must not
    log_warning("telemetry failed: {}", error.what());
    explain_absence(std::string("telemetry failed: ") + error.what());
  }
  const std::lock_guard lock(mutex);
  ended = true;
  wake.notify_all();
}

Telemetry::Watch::Probes Telemetry::Watch::open_probes() {
  Probes probes;
  EnergyOptions energy_options{.powercap = options.powercap};
  const bool uses_gpu = !options.pci_bus_id.empty() || !options.device.is_cpu();
  if (uses_gpu) {
    const std::string bus = options.pci_bus_id.empty() ? device_facts(options.device).pci_bus_id : options.pci_bus_id;
    energy_options.nvml = std::make_shared<const NvmlLibrary>(options.nvml_library);
    energy_options.pci_bus_ids = options.energy_gpus.empty() ? std::vector{bus} : options.energy_gpus;
    probes.gpu = std::make_unique<GpuProbe>(energy_options.nvml, bus);
  }
  probes.energy = std::make_unique<EnergyMeter>(energy_options);
  const std::lock_guard lock(mutex);
  energy_source = probes.energy->source();
  if (!uses_gpu) {
    for (const Metric metric : kGpuMetrics) reasons.emplace(info(metric).name, "the run uses no GPU");
    for (const Metric metric : {Metric::memory_reserved_mib, Metric::memory_active_mib, Metric::alloc_retries,
                                Metric::device_allocs, Metric::device_frees})
      reasons.emplace(info(metric).name, "only libtorch's GPU allocator has this");
  }
  return probes;
}

void Telemetry::Watch::sample_until_stopped() {
  Probes probes = open_probes();
  ProcessProbe process;
  const auto started = Clock::now();
  const auto interval = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.interval_s));
  for (auto due = started;; due = std::max(due + interval, Clock::now())) {
    take_sample(probes, process, started);
    std::unique_lock lock(mutex);
    wake.wait_until(lock, due + interval, [this] { return stopping || paused; });
    const bool was_paused = paused;
    wake.wait(lock, [this] { return stopping || !paused; });
    if (stopping) return;
    if (!was_paused) continue;
    process.restart_interval();  // excludes the load during the pause
    probes.energy->restart_interval();
    if (probes.gpu) probes.gpu->restart_interval();
  }
}

void Telemetry::Watch::take_sample(Probes& probes, ProcessProbe& process, Clock::time_point started) {
  TelemetrySample sample;
  process.sample(sample.values);
  if (probes.gpu) probes.gpu->sample(sample.values);
  sample.at = Clock::now();
  sample.values[Metric::energy_j] = probes.energy->sample(sample.at);
  if (file) file->write(telemetry_line(milliseconds_between(started, sample.at) / 1e3, sample.values));
  const std::lock_guard lock(mutex);
  if (probes.gpu) reasons = probes.gpu->reasons();
  reasons.erase(std::string(info(Metric::energy_j).name));
  if (!probes.energy->reason().empty()) reasons.emplace(info(Metric::energy_j).name, probes.energy->reason());
  if (sample.values[Metric::energy_j]) energy.push_back(sample);
  if (energy.size() > kSamplesKept) energy.pop_front();
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
    log_warning("no telemetry: {}", error.what());
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
    log_warning("telemetry is abandoned: the GPU's driver does not respond");
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
  const bool repeats = first == last;
  if (repeats) {
    if (first == samples.begin()) return result;
    --first;
  }
  std::vector<double> values;
  for (const MetricInfo& metric : kCatalogue) {
    if (repeats && metric.aggregate == Aggregate::sum) continue;  // it belongs to an earlier step
    values.clear();
    for (auto sample = first; sample != last; ++sample)
      if (const auto& value = sample->values[metric.metric]) values.push_back(*value);
    if (!values.empty()) result.values[metric.metric] = combined(metric.aggregate, values);
  }
  return result;
}

void Telemetry::fill(StepRecord& row) {
  TelemetrySample sample = between(row.began, row.ended);
  sample.values[Metric::energy_j] = take_energy(row.ended);
  for (const MetricInfo& metric : kCatalogue)
    if (!row[metric.metric]) row[metric.metric] = sample.values[metric.metric];
}

/// A reading may be taken in a step and be stored only after the step's row was filled, so it goes to the next row.
std::optional<double> Telemetry::take_energy(Clock::time_point end) {
  const std::lock_guard lock(watch_->mutex);
  std::optional<double> joules;
  for (auto& readings = watch_->energy; !readings.empty() && readings.front().at < end; readings.pop_front())
    joules = joules.value_or(0) + *readings.front().values[Metric::energy_j];
  return joules;
}

std::optional<EnergySource> Telemetry::energy_source() const {
  const std::lock_guard lock(watch_->mutex);
  return watch_->energy_source;
}

Reasons Telemetry::reasons() const {
  const std::lock_guard lock(watch_->mutex);
  return watch_->reasons;
}

}  // namespace trainopt
