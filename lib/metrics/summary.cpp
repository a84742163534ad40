#include "metrics/summary.h"

#include "base/error.h"
#include "base/units.h"
#include "metrics/format.h"
#include "statistics/welch.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace trainopt {
namespace {

/// Step times stored for percentiles: all up to this number, then those of every second, fourth, … step.
constexpr size_t kMaxStepTimes = 1 << 20;

/// Steps that were not profiled, without which a recorded step is compared with nothing.
constexpr int64_t kLeastForSlowdown = 3;

Json json_of(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

/// The half-width of the throughput's interval in % of it: `interval` or, if the series is too short for that,
/// Student's for independent steps. nullopt for fewer than five.
std::optional<double> noise_pct(const std::vector<Piece>& pieces, const std::optional<Interval>& interval) {
  if (interval) return 100 * (interval->high - interval->low) / (interval->high + interval->low);
  const auto n = static_cast<double>(pieces.size());
  if (pieces.size() < 5) return std::nullopt;
  double sum = 0, squares = 0;
  for (const Piece& piece : pieces) sum += piece.seconds / piece.samples;
  for (const Piece& piece : pieces) squares += std::pow(piece.seconds / piece.samples - sum / n, 2);
  const double standard_error = std::sqrt(squares / (n - 1) / n);
  return 100 * student_quantile((1 - Summary::kLevel) / 2, n - 1) * standard_error / (sum / n);
}

}  // namespace

std::optional<double> Summary::of_data_sheet(const std::optional<double>& mfu_pct) const {
  return mfu_pct && measured_by_data_sheet_ ? std::optional(*mfu_pct * *measured_by_data_sheet_) : std::nullopt;
}

double price_of_a_million_samples(double price_per_hour, double samples_per_s) {
  return price_per_hour / 3600 / samples_per_s * 1e6;
}

double percentile(std::vector<double>& values, double q) {
  TRAINOPT_CHECK(!values.empty());
  const double position = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(std::floor(position));
  std::nth_element(values.begin(), values.begin() + below, values.end());
  const double low = values[static_cast<size_t>(below)];
  if (static_cast<double>(below) == position) return low;
  const double high = *std::min_element(values.begin() + below + 1, values.end());
  return low + (high - low) * (position - static_cast<double>(below));
}

void Summary::Sums::Weighted::add(const std::optional<double>& value, double by) {
  if (!value) return;
  sum += *value * by;
  weight += by;
}

std::optional<double> Summary::Sums::Weighted::mean() const {
  return weight > 0 ? std::optional(sum / weight) : std::nullopt;
}

void Summary::Sums::add(const StepRecord& row) {
  const auto& time = row[Metric::step_ms];
  if (!time) return;
  samples += static_cast<double>(row.step_samples);
  tokens += static_cast<double>(row.step_tokens);
  step_ms += *time;
  if (const auto& wait = row[Metric::data_wait_ms]; wait && *time > 0) data_wait.add(100 * *wait / *time, *time);
  const auto share_of = [&](Metric part) {
    return row[part] && *time > 0 ? std::optional(100 * *row[part] / *time) : std::nullopt;
  };
  copy.add(share_of(Metric::copy_ms), *time);
  exposed.add(share_of(Metric::comm_exposed_ms), *time);
  mfu.add(row[Metric::mfu_pct], *time);
  gpu_util.add(row[Metric::gpu_util_pct], *time);
  gpu_sm_util.add(row[Metric::gpu_sm_util_pct], *time);
  gpu_tensor_util.add(row[Metric::gpu_tensor_util_pct], *time);
  cpu_util.add(row[Metric::cpu_util_pct], *time);
  phases.add(row);
}

Summary::Summary(int64_t warmup_steps) : warmup_steps_(warmup_steps) { TRAINOPT_CHECK(warmup_steps >= 0); }

void Summary::add(const StepRecord& row) {
  if (const auto& loss = row[Metric::loss]) {
    if (!first_loss_) first_loss_ = loss;
    last_loss_ = loss;
  }
  const auto& memory =
      row[Metric::memory_reserved_mib] ? row[Metric::memory_reserved_mib] : row[Metric::process_rss_mib];
  if (memory) largest_memory_mib_ = std::max(largest_memory_mib_.value_or(0), *memory);
  if (const auto& share = row[Metric::memory_peak_pct])
    memory_peak_pct_ = std::max(memory_peak_pct_.value_or(0), *share);
  memory_trend_.add(row);
  const std::optional<Piece> piece = piece_of(row);
  if (row.profiling == Profiling::none) return add_unprofiled(row, piece);
  ++profiled_steps_;
  if (steps_ >= 2 * warmup_steps_) later_energy_.add(row);  // a reading covers several steps, profiled or not
  if (row.profiling != Profiling::active) return;
  ++recorded_steps_;
  recorded_ms_ += row[Metric::step_ms].value_or(0);
}

void Summary::add_unprofiled(const StepRecord& row, const std::optional<Piece>& piece) {
  ++steps_;
  if (steps_ <= 2 * warmup_steps_) {
    head_.push_back(row);
    head_pieces_.push_back(piece);
    return;
  }
  later_.add(row);
  later_conditions_.add(row);
  later_stragglers_.add(row.ranks);
  later_energy_.add(row);
  if (piece) later_series_.add(*piece);
  if (!row[Metric::step_ms] || steps_ % stride_ != 0) return;
  later_ms_.push_back(*row[Metric::step_ms]);
  if (later_ms_.size() < kMaxStepTimes) return;
  stride_ *= 2;
  size_t count = 0;
  for (size_t i = 1; i < later_ms_.size(); i += 2) later_ms_[count++] = later_ms_[i];
  later_ms_.resize(count);
}

/// Sums of the slowest rank's time in every single step would count more than the job took: a rank that ends a step
/// late is the sooner done with the next. So this is by how much the latest rank's clock has advanced.
std::optional<Piece> Summary::piece_of(const StepRecord& row) {
  double step_ms = row[Metric::step_ms].value_or(0);
  if (!row.ranks.empty()) {
    rank_ms_.resize(row.ranks.size());
    const double before = *std::max_element(rank_ms_.begin(), rank_ms_.end());
    for (size_t rank = 0; rank < row.ranks.size(); ++rank) rank_ms_[rank] += row.ranks[rank].step_ms;
    step_ms = *std::max_element(rank_ms_.begin(), rank_ms_.end()) - before;
  }
  if (step_ms <= 0 || row.step_samples <= 0) return std::nullopt;
  return Piece{static_cast<double>(row.step_samples), step_ms / 1e3};
}

int64_t left_out_steps(int64_t steps, int64_t warmup) { return steps < 2 * warmup ? steps / 2 : warmup; }

int64_t Summary::left_out_steps() const { return trainopt::left_out_steps(steps_, warmup_steps_); }

std::vector<Piece> Summary::pieces() const {
  StepSeries head_series(later_series_.steps_per_piece());
  for (size_t i = static_cast<size_t>(left_out_steps()); i < head_.size(); ++i)
    if (head_pieces_[i]) head_series.add(*head_pieces_[i]);
  std::vector<Piece> pieces = head_series.pieces();
  for (const Piece& piece : later_series_.pieces()) pieces.push_back(piece);
  return pieces;
}

Summary::Statistics Summary::statistics() const {
  Statistics result{.sums = later_,
                    .mean = {},
                    .p50 = {},
                    .p95 = {},
                    .p99 = {},
                    .samples_per_s = {},
                    .tokens_per_s = {},
                    .samples_per_s_interval = {},
                    .straggler = {},
                    .energy = {},
                    .samples_per_joule = {},
                    .price_per_million_samples = {},
                    .alloc_retries = {},
                    .warnings = {}};
  std::vector<double> times = later_ms_;
  Conditions conditions = later_conditions_;
  Stragglers stragglers = later_stragglers_;
  for (size_t i = static_cast<size_t>(left_out_steps()); i < head_.size(); ++i) {
    result.sums.add(head_[i]);
    conditions.add(head_[i]);
    stragglers.add(head_[i].ranks);
    result.energy.add(head_[i]);
    // Thinned like later_ms_, so that every stored time represents the same number of steps.
    if (head_[i][Metric::step_ms] && static_cast<int64_t>(i) % stride_ == 0)
      times.push_back(*head_[i][Metric::step_ms]);
  }
  if (times.empty()) return result;
  const auto steps = static_cast<double>(measured_steps());
  result.mean = result.sums.step_ms / steps;
  result.p50 = percentile(times, 0.50);
  result.p95 = percentile(times, 0.95);
  result.p99 = percentile(times, 0.99);
  result.samples_per_s = result.sums.per_second(result.sums.samples);
  result.tokens_per_s = result.sums.per_second(result.sums.tokens);
  result.energy.add(later_energy_);
  add_costs(result);
  const std::vector<Piece> measured = pieces();
  result.samples_per_s_interval = throughput_interval(measured, kLevel, 0);
  result.warnings = conditions.warnings(measured);
  if (auto growth = memory_trend_.warning()) result.warnings.push_back(std::move(*growth));
  result.alloc_retries = conditions.alloc_retries();
  result.straggler = stragglers.found();
  if (result.straggler) result.warnings.push_back(result.straggler->text());
  return result;
}

std::optional<double> Summary::profiler_slowdown_pct(const Statistics& statistics) const {
  if (recorded_steps_ == 0 || measured_steps() < kLeastForSlowdown || !statistics.mean || *statistics.mean <= 0)
    return std::nullopt;
  return 100 * (recorded_ms_ / static_cast<double>(recorded_steps_) / *statistics.mean - 1);
}

void Summary::add_costs(Statistics& result) const {
  const bool of_all = rank_ms_.empty() || energy_of_all_ranks_;  // as the samples are
  if (of_all && result.energy.joules() > 0) result.samples_per_joule = result.energy.samples() / result.energy.joules();
  if (price_per_hour_ && result.samples_per_s)
    result.price_per_million_samples = price_of_a_million_samples(*price_per_hour_, *result.samples_per_s);
}

Json Summary::to_json() const {
  const Statistics s = statistics();
  Json json;
  json["time_to_first_step_s"] = json_of(time_to_first_step_s_);
  json["samples_per_s"] = json_of(s.samples_per_s);
  json["samples_per_s_interval"] = nullptr;
  if (const auto& range = s.samples_per_s_interval)
    json["samples_per_s_interval"] = {{"low", range->low}, {"high", range->high}, {"level", kLevel}};
  json["tokens_per_s"] = json_of(s.tokens_per_s);
  json["step_ms"] = {
      {"mean", json_of(s.mean)}, {"p50", json_of(s.p50)}, {"p95", json_of(s.p95)}, {"p99", json_of(s.p99)}};
  json["phases_ms"] = s.sums.phases.means_json();
  json["data_wait_pct"] = json_of(s.sums.data_wait.mean());
  json["mfu_pct"] = json_of(s.sums.mfu.mean());
  json["mfu_data_sheet_pct"] = json_of(of_data_sheet(s.sums.mfu.mean()));
  json["gpu_util_pct"] = json_of(s.sums.gpu_util.mean());
  json["gpu_sm_util_pct"] = json_of(s.sums.gpu_sm_util.mean());
  json["gpu_tensor_util_pct"] = json_of(s.sums.gpu_tensor_util.mean());
  json["cpu_util_pct"] = json_of(s.sums.cpu_util.mean());
  json["peak_memory_mib"] = json_of(peak_memory_mib_ ? peak_memory_mib_ : largest_memory_mib_);
  json["memory_peak_pct"] = json_of(memory_peak_pct_);
  json["alloc_retries"] = s.alloc_retries ? Json(*s.alloc_retries) : Json();
  json["loss"] = {{"first", json_of(first_loss_)}, {"last", json_of(last_loss_)}};
  json["measured_steps"] = measured_steps();
  json["left_out_steps"] = left_out_steps();
  json["profiler"] = nullptr;
  if (profiled_steps_ > 0)
    json["profiler"] = {{"steps", profiled_steps_}, {"slowdown_pct", json_of(profiler_slowdown_pct(s))}};
  json["straggler"] = nullptr;
  if (const auto& rank = s.straggler)
    json["straggler"] = {{"rank", rank->rank},
                         {"busy_ms", rank->busy_ms},
                         {"others_ms", rank->others_ms},
                         {"data_wait_ms", rank->data_wait_ms},
                         {"steps_pct", rank->steps_pct}};
  json["warnings"] = s.warnings;
  json["energy_j"] = s.energy.any() ? Json(s.energy.joules()) : Json();
  json["energy_source"] = s.energy.any() && energy_source_ ? Json(energy_source_->kind) : Json();
  json["energy_of"] = s.energy.any() && energy_source_ ? Json(energy_source_->text) : Json();
  json["samples_per_joule"] = json_of(s.samples_per_joule);
  json["price_per_million_samples"] = json_of(s.price_per_million_samples);
  return json;
}

std::optional<StepTimes> Summary::step_times() const {
  const Statistics s = statistics();
  if (!s.mean) return std::nullopt;
  const auto phases = s.sums.phases.means_ms();
  return StepTimes{.mean_ms = *s.mean,
                   .forward_ms = phases[0],
                   .backward_ms = phases[1],
                   .update_ms = phases[2],
                   .data_wait_pct = s.sums.data_wait.mean(),
                   .copy_pct = s.sums.copy.mean(),
                   .exposed_pct = s.sums.exposed.mean(),
                   .gpu_busy_pct = s.sums.gpu_util.mean(),
                   .mfu_pct = s.sums.mfu.mean(),
                   .noise_pct = noise_pct(pieces(), s.samples_per_s_interval),
                   .straggler = s.straggler};
}

namespace {

std::string energy_text(const EnergySums& energy, const std::optional<double>& samples_per_joule,
                        const std::optional<EnergySource>& source) {
  std::string text = fmt::format("{:.4g} J", energy.joules());
  if (samples_per_joule) text += fmt::format(", {:.4g} samples per joule", *samples_per_joule);
  if (source) text += fmt::format(" ({})", source->text);
  return text;
}

std::string mfu_text(double share_pct, const std::optional<double>& of_sheet_pct) {
  std::string text = fmt::format("{:.1f} % of the measured peak", share_pct);
  if (of_sheet_pct) text += fmt::format(", {:.1f} % of the data sheet's", *of_sheet_pct);
  if (share_pct > 100)
    text += "; above 100 %: an algorithm multiplies less, or the peak is too low (trainopt roofline --again)";
  return text;
}

}  // namespace

std::string slowdown_text(double slowdown_pct) {
  const std::string pct = fmt::format("{:.1f}", slowdown_pct);
  if (slowdown_pct <= 0 || pct == "0.0") return "recording made no step measurably slower";
  return fmt::format("recording made a step {} % slower", pct);
}

std::string Summary::table(const std::vector<SwitchLine>& switches) const {
  const Statistics s = statistics();
  std::string text;
  size_t width = std::string_view("time to first step").size();
  for (const SwitchLine& line : switches) width = std::max(width, line.name.size());
  const auto row = [&](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{}  {:<{}}  {}", text.empty() ? "" : "\n", name, width, value);
  };
  const auto& range = s.samples_per_s_interval;
  const std::string interval =
      range ? fmt::format(" ({}–{}, {:.0f} %)", human_rate(range->low), human_rate(range->high), 100 * kLevel) : "";
  if (s.samples_per_s) row("samples/s", human_rate(*s.samples_per_s) + interval);
  if (s.tokens_per_s) row("tokens/s", human_rate(*s.tokens_per_s));
  if (s.p50)
    row("step time", fmt::format("p50 {}   p95 {}   p99 {}", human_milliseconds(*s.p50), human_milliseconds(*s.p95),
                                 human_milliseconds(*s.p99)));
  if (const std::string phases = s.sums.phases.text(); !phases.empty()) row("mean step", phases);
  if (const auto share = s.sums.data_wait.mean()) row("waiting for data", fmt::format("{:.1f} % of the time", *share));
  if (const auto share = s.sums.mfu.mean()) row("MFU", mfu_text(*share, of_data_sheet(share)));
  if (const auto share = s.sums.gpu_util.mean())
    row("GPU utilization", fmt::format("{:.0f} % of the time with a kernel running (NVML), mean", *share));
  if (const auto share = s.sums.gpu_sm_util.mean())
    row("SM utilization", fmt::format("{:.0f} % of the multiprocessors busy (GPM), mean", *share));
  if (const auto share = s.sums.gpu_tensor_util.mean())
    row("tensor cores", fmt::format("{:.0f} % of the time active (GPM), mean", *share));
  if (const auto share = s.sums.cpu_util.mean())
    row("CPU utilization", fmt::format("{:.0f} % of the allowed cores, mean", *share));
  if (const auto memory = peak_memory_mib_ ? peak_memory_mib_ : largest_memory_mib_)
    row("peak memory", human_bytes(*memory * 0x1p20));
  if (s.energy.any()) row("energy", energy_text(s.energy, s.samples_per_joule, energy_source_));
  if (s.price_per_million_samples)
    row("price",
        fmt::format("{:.4g} per million samples, at {:.4g} per hour", *s.price_per_million_samples, *price_per_hour_));
  if (time_to_first_step_s_) row("time to first step", human_seconds(*time_to_first_step_s_));
  if (measured_steps() > 0) {
    const std::string left_out =
        left_out_steps() == 0 ? "" : fmt::format(", the first {} excluded as warm-up", left_out_steps());
    row("measured over", fmt::format("{} step{}{}", measured_steps(), measured_steps() == 1 ? "" : "s", left_out));
  }
  if (profiled_steps_ > 0) {
    const auto slower = profiler_slowdown_pct(s);
    row("profiled", fmt::format("{} step{}, not counted above{}", profiled_steps_, profiled_steps_ == 1 ? "" : "s",
                                slower ? "; " + slowdown_text(*slower) : ""));
  }
  for (const SwitchLine& line : switches) row(line.name, line.observed);
  for (const std::string& warning : s.warnings) row("warning", warning);
  return text;
}

}  // namespace trainopt
