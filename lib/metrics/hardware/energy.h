// Energy from the hardware's own counters: GPUs through NVML, CPUs through the kernel's powercap (Intel's and AMD's
// RAPL).
#pragma once

#include "base/clock.h"
#include "metrics/record.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct NvmlLibrary;

/// What an energy includes.
struct EnergySource {
  std::string kind;  ///< "gpu", "cpu" or "both"
  std::string text;  ///< in words, with what is not included
};

/// What EnergyMeter reads; tests pass their own.
struct EnergyOptions {
  std::vector<std::string> pci_bus_ids = {};     ///< this process's GPUs
  std::shared_ptr<const NvmlLibrary> nvml = {};  ///< not needed without GPUs
  /// Package domains `intel-rapl:N` are read, not their parts, which they include.
  std::filesystem::path powercap = "/sys/class/powercap";
};

/// Not for several threads. Never throws; anything missing is a reason.
class EnergyMeter {
 public:
  explicit EnergyMeter(const EnergyOptions& options);
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  /// Joules of all counters since the last value, at least a second ago; nullopt before that, and if a counter cannot
  /// be read now, so that the next value covers a longer time.
  std::optional<double> sample(Clock::time_point now);
  /// The next value covers the time from the next sample() on.
  void restart_interval() { began_.reset(); }

  /// nullopt without any counter.
  const std::optional<EnergySource>& source() const { return source_; }
  /// Why the last sample() had no value although a second had passed; empty if it had one.
  const std::string& reason() const { return reason_; }

 private:
  struct Counter;
  void add_gpus(const EnergyOptions& options);
  void add_packages(const std::filesystem::path& powercap);
  void describe_source();
  /// nullopt sets the reason.
  std::optional<std::vector<uint64_t>> read_all();

  std::vector<Counter> counters_;
  std::string no_gpus_, no_cpus_;  ///< why they are not included
  std::optional<EnergySource> source_;
  std::string reason_;
  std::optional<Clock::time_point> began_;
};

// The energy of a run's steps, and the samples that it paid for.

/// Adds up the energy that steps report. A reading covers the time since the one before and so belongs to several
/// steps: samples are counted from one reading to another, and the first reading only marks where counting starts.
class EnergySums {
 public:
  void add(const StepRecord& row);
  /// Adds the steps that follow these ones.
  void add(const EnergySums& following);

  double joules() const { return joules_; }    ///< energy between the first reading and the last
  double samples() const { return samples_; }  ///< samples of the steps in between
  bool any() const { return samples_ > 0; }

 private:
  struct Reading {
    double joules = 0, samples_before = 0;  ///< samples since the reading before, or since the start
  };
  std::optional<Reading> first_;
  double joules_ = 0, samples_ = 0;
  double samples_after_ = 0;  ///< samples since the last reading
};

}  // namespace trainopt
