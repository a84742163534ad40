// The statistics of a whole run, from its rows.
#pragma once

#include "base/json.h"
#include "metrics/conditions.h"
#include "metrics/hardware/energy.h"
#include "metrics/phases.h"
#include "metrics/record.h"
#include "metrics/step_statistics.h"
#include "metrics/stragglers.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// The quantile `q` in [0, 1] of `values`, with linear interpolation between neighbours (numpy's default). `values`
/// must not be empty and is reordered.
double percentile(std::vector<double>& values, double q);

/// The price is in the currency of `price_per_hour`.
double price_of_a_million_samples(double price_per_hour, double samples_per_s);

/// A switch's row in the table at the end of a run.
struct SwitchLine {
  std::string name;
  std::string observed;
};

/// How many of so many steps count as warm-up: half of them if there are fewer than twice as many as `warmup`.
int64_t left_out_steps(int64_t steps, int64_t warmup);

/// "recording made a step 3.1 % slower", or that no slow-down can be measured: the times of steps vary.
std::string slowdown_text(double slowdown_pct);

class Summary {
 public:
  static constexpr double kLevel = 0.95;  ///< level of the throughput's interval

  /// Excludes the first `warmup_steps` from the statistics, or half of all steps if there are fewer than twice as many.
  explicit Summary(int64_t warmup_steps);

  /// Profiled steps count only towards their own slow-down, the losses, the memory and the energy.
  void add(const StepRecord& row);
  /// Seconds from the start of the process to the end of its first step.
  void set_time_to_first_step(double seconds) { time_to_first_step_s_ = seconds; }
  /// Peak memory from libtorch's allocator or the kernel, which also see peaks between steps. Without it, the largest
  /// value of the rows is used.
  void set_peak_memory(double mib) { peak_memory_mib_ = mib; }

  /// What the rows' energy_j includes.
  void set_energy_source(std::optional<EnergySource> source) { energy_source_ = std::move(source); }
  /// Whether, with several ranks, the rows' energy_j is that of all. Otherwise no samples per joule are computed.
  void set_energy_of_all_ranks(bool all) { energy_of_all_ranks_ = all; }
  /// What an hour of the machines costs, in any currency.
  void set_price_per_hour(std::optional<double> price) { price_per_hour_ = price; }

  /// The measured peak as a share of the data sheet's, where the device has one.
  void set_measured_by_data_sheet(std::optional<double> share) { measured_by_data_sheet_ = share; }

  /// The loss of the training's first step, if another process took that step.
  void set_first_loss(std::optional<double> loss) { first_loss_ = loss; }
  const std::optional<double>& first_loss() const { return first_loss_; }

  int64_t steps() const { return steps_; }
  int64_t left_out_steps() const;
  int64_t measured_steps() const { return steps_ - left_out_steps(); }

  /// Samples and seconds of the measured steps in order, neighbours merged so that there are at most 2048 pieces. With
  /// several ranks a step ends when the last rank has ended it.
  std::vector<Piece> pieces() const;

  /// The keys of summary.json that derive from rows: samples_per_s, samples_per_s_interval (low, high and level),
  /// tokens_per_s, step_ms, phases_ms (forward, backward, update), data_wait_pct, mfu_pct (and mfu_data_sheet_pct),
  /// gpu_util_pct (and gpu_sm_util_pct, gpu_tensor_util_pct), cpu_util_pct, peak_memory_mib, memory_peak_pct,
  /// alloc_retries (in the measured steps), loss, measured_steps, left_out_steps, profiler (steps and slowdown_pct, if
  /// a step was profiled), time_to_first_step_s, straggler, warnings, energy_j, energy_source, energy_of,
  /// samples_per_joule, price_per_million_samples. null: not measured, or no finding. Energy is that from the first to
  /// the last reading in the measured steps, with evaluations and checkpoints in between; samples_per_joule is null if
  /// it is not that of all ranks.
  Json to_json() const;
  const std::optional<double>& memory_peak_pct() const { return memory_peak_pct_; }
  /// nullopt if no step was measured.
  std::optional<StepTimes> step_times() const;
  /// The console's table: several lines, the last without a newline; warnings come last.
  std::string table(const std::vector<SwitchLine>& switches) const;

 private:
  /// Sums over steps; a percentage is weighted by the time of its step.
  struct Sums {
    double samples = 0, tokens = 0, step_ms = 0;
    struct Weighted {
      double sum = 0, weight = 0;
      void add(const std::optional<double>& value, double by);
      std::optional<double> mean() const;
    };
    Weighted data_wait, copy, exposed, mfu, gpu_util, gpu_sm_util, gpu_tensor_util, cpu_util;
    PhaseSums phases;
    void add(const StepRecord& row);
    std::optional<double> per_second(double count) const {
      return step_ms > 0 && count > 0 ? std::optional(count / step_ms * 1e3) : std::nullopt;
    }
  };
  struct Statistics {
    Sums sums;
    std::optional<double> mean, p50, p95, p99, samples_per_s, tokens_per_s;
    std::optional<Interval> samples_per_s_interval;  ///< nullopt: too few steps to estimate their noise
    std::optional<Straggler> straggler;
    EnergySums energy;
    std::optional<double> samples_per_joule, price_per_million_samples;
    std::optional<int64_t> alloc_retries;
    std::vector<std::string> warnings;
  };
  Statistics statistics() const;
  void add_costs(Statistics& result) const;
  std::optional<double> of_data_sheet(const std::optional<double>& mfu_pct) const;
  std::optional<Piece> piece_of(const StepRecord& row);
  void add_unprofiled(const StepRecord& row, const std::optional<Piece>& piece);
  /// How much longer a step takes while it is recorded, in %; below 0 if the noise is larger.
  std::optional<double> profiler_slowdown_pct(const Statistics& statistics) const;

  int64_t warmup_steps_, steps_ = 0;
  int64_t profiled_steps_ = 0, recorded_steps_ = 0;  ///< the latter without the profiler's warm-up
  double recorded_ms_ = 0;                           ///< time of recorded_steps_
  std::vector<StepRecord> head_;  ///< the first 2·warmup_steps rows; which of them count is known only later
  std::vector<std::optional<Piece>> head_pieces_;  ///< pieces of head_
  std::vector<double> rank_ms_;                    ///< each rank's sum of step times so far
  Sums later_;
  MemoryTrend memory_trend_;
  StepSeries later_series_;
  Conditions later_conditions_;
  Stragglers later_stragglers_;
  EnergySums later_energy_;
  std::vector<double> later_ms_;  ///< every `stride_`-th step's time
  int64_t stride_ = 1;
  std::optional<double> first_loss_, last_loss_, time_to_first_step_s_, peak_memory_mib_, largest_memory_mib_,
      memory_peak_pct_;
  std::optional<EnergySource> energy_source_;
  bool energy_of_all_ranks_ = false;
  std::optional<double> price_per_hour_, measured_by_data_sheet_;
};

}  // namespace trainopt
