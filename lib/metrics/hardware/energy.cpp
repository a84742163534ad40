#include "metrics/hardware/energy.h"

#include "base/units.h"
#include "metrics/hardware/nvml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace trainopt {

namespace fs = std::filesystem;
namespace {

/// NVML renews its counter every 20 to 100 ms, RAPL every millisecond; over a second that is noise.
constexpr double kMinWindowSeconds = 1;
/// A package's counter of 2^32 units of 15 µJ, the smallest in use, wraps after a minute at 1,000 W. Over a longer
/// window a wrap could go unnoticed.
constexpr double kMaxPackageWindowSeconds = 60;

/// A number in a file; nullopt sets `problem`.
std::optional<uint64_t> number_in(const fs::path& path, std::string& problem) {
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "re");
  uint64_t value = 0;
  const bool found = file && std::fscanf(file, "%" SCNu64, &value) == 1;
  const int error = errno;
  if (file) std::fclose(file);
  if (found) return value;
  problem = fmt::format("{}: {}", path.string(), error ? std::strerror(error) : "no number");
  if (error == EACCES) problem += " (root may read it, or grant it with chmod a+r)";
  return std::nullopt;
}

/// RAPL also has a domain for the whole platform ("psys") and repeats packages under intel-rapl-mmio.
bool is_package(const fs::path& domain) {
  const std::string folder = domain.filename().string();
  if (!folder.starts_with("intel-rapl:") || std::count(folder.begin(), folder.end(), ':') != 1) return false;
  std::FILE* file = std::fopen((domain / "name").c_str(), "re");
  char name[32] = {};
  const bool found = file && std::fscanf(file, "%31s", name) == 1;
  if (file) std::fclose(file);
  return found && std::string_view(name).starts_with("package");
}

}  // namespace

struct EnergyMeter::Counter {
  bool is_gpu;
  double joules_per_unit;
  uint64_t range;  ///< largest value before it starts again at 0; 0: does not wrap
  std::function<std::optional<uint64_t>(std::string& problem)> read;
  uint64_t before = 0;

  double joules_until(uint64_t now) const {
    const uint64_t units = now >= before ? now - before : range == 0 ? 0 : range - before + now;
    return static_cast<double>(units) * joules_per_unit;
  }
};

EnergyMeter::EnergyMeter(const EnergyOptions& options) {
  add_gpus(options);
  add_packages(options.powercap);
  describe_source();
}

EnergyMeter::~EnergyMeter() = default;

/// With some of the GPUs missing the sum would be wrong, so it is all or none.
void EnergyMeter::add_gpus(const EnergyOptions& options) {
  if (options.pci_bus_ids.empty()) return;
  const auto nvml = options.nvml;
  if (!nvml->open) {
    no_gpus_ = nvml->error;
    return;
  }
  if (!nvml->functions.total_energy) {
    no_gpus_ = "this driver's NVML has no energy counter";
    return;
  }
  std::vector<Counter> gpus;
  for (const std::string& bus : options.pci_bus_ids) {
    nvmlDevice_t device{};
    if (const auto result = nvml->functions.handle_by_pci(bus.c_str(), &device); result != NVML_SUCCESS) {
      no_gpus_ = fmt::format("NVML cannot find the GPU {}: {}", bus, nvml->text(result));
      return;
    }
    const auto read = [nvml, device](std::string& problem) -> std::optional<uint64_t> {
      unsigned long long millijoules = 0;
      const nvmlReturn_t result = nvml->functions.total_energy(device, &millijoules);
      if (result == NVML_SUCCESS) return millijoules;
      problem = "NVML: " + nvml->text(result);
      return std::nullopt;
    };
    if (!read(no_gpus_)) return;
    gpus.push_back({.is_gpu = true, .joules_per_unit = 1e-3, .range = 0, .read = read});
  }
  std::move(gpus.begin(), gpus.end(), std::back_inserter(counters_));
}

void EnergyMeter::add_packages(const fs::path& powercap) {
  std::error_code error;
  std::vector<Counter> packages;
  for (const auto& domain : fs::directory_iterator(powercap, error)) {
    if (!is_package(domain.path())) continue;
    const auto range = number_in(domain.path() / "max_energy_range_uj", no_cpus_);
    const auto read = [file = domain.path() / "energy_uj"](std::string& problem) { return number_in(file, problem); };
    if (!range || !read(no_cpus_)) return;
    packages.push_back({.is_gpu = false, .joules_per_unit = 1e-6, .range = *range, .read = read});
  }
  if (packages.empty()) no_cpus_ = fmt::format("{} has no energy counter of a CPU package", powercap.string());
  std::move(packages.begin(), packages.end(), std::back_inserter(counters_));
}

void EnergyMeter::describe_source() {
  const auto gpus = std::count_if(counters_.begin(), counters_.end(), [](const Counter& c) { return c.is_gpu; });
  const auto packages = static_cast<int64_t>(counters_.size()) - gpus;
  if (counters_.empty()) {
    reason_ = no_gpus_.empty() ? no_cpus_ : no_gpus_ + "; " + no_cpus_;
    return;
  }
  source_ = {packages == 0 ? "gpu" : gpus == 0 ? "cpu" : "both", ""};
  if (gpus > 0) source_->text = counted(gpus, "GPU");
  if (packages > 0)
    source_->text +=
        fmt::format("{}{}, other programs included", gpus > 0 ? " and " : "", counted(packages, "whole CPU package"));
  if (!no_gpus_.empty()) source_->text += "; without the GPU: " + no_gpus_;
  if (packages == 0) source_->text += "; without the CPU: " + no_cpus_;
  reason_ = "no second passed between two readings of the energy counters";
}

std::optional<std::vector<uint64_t>> EnergyMeter::read_all() {
  std::vector<uint64_t> values;
  for (const Counter& counter : counters_) {
    const auto value = counter.read(reason_);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::optional<double> EnergyMeter::sample(Clock::time_point now) {
  if (counters_.empty()) return std::nullopt;
  const double seconds = began_ ? milliseconds_between(*began_, now) / 1e3 : 0;
  if (began_ && seconds < kMinWindowSeconds) return std::nullopt;
  const auto values = read_all();
  if (!values) return std::nullopt;
  double joules = 0;
  for (size_t i = 0; i < counters_.size(); ++i) {
    joules += counters_[i].joules_until((*values)[i]);
    counters_[i].before = (*values)[i];
  }
  if (!std::exchange(began_, now)) return std::nullopt;
  if (source_->kind != "gpu" && seconds > kMaxPackageWindowSeconds) {
    reason_ = "the CPU's energy counter must be read every minute; telemetry.interval is longer";
    return std::nullopt;
  }
  reason_.clear();
  return joules;
}

void EnergySums::add(const StepRecord& row) {
  EnergySums one;
  if (const auto& joules = row[Metric::energy_j])
    one.first_ = {.joules = *joules, .samples_before = static_cast<double>(row.step_samples)};
  else
    one.samples_after_ = static_cast<double>(row.step_samples);
  add(one);
}

void EnergySums::add(const EnergySums& following) {
  if (!following.first_) {
    samples_after_ += following.samples_after_;
    return;
  }
  if (first_) {
    joules_ += following.first_->joules;
    samples_ += samples_after_ + following.first_->samples_before;
  } else {
    first_ = {following.first_->joules, samples_after_ + following.first_->samples_before};
  }
  joules_ += following.joules_;
  samples_ += following.samples_;
  samples_after_ = following.samples_after_;
}

}  // namespace trainopt
