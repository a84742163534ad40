#include "metrics/conditions.h"

#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace trainopt {
namespace {

constexpr double kMaxOtherPct = 10, kMaxDrift = 0.02, kDriftLevel = 0.99;
constexpr EnoughPieces kEnoughForDrift{.pieces = 8, .correlation_times = 0};  // a warning, not a result

std::optional<std::string> drift(std::span<const Piece> pieces) {
  const size_t third = pieces.size() / 3;
  if (third == 0) return std::nullopt;
  const auto first = pieces.first(third), last = pieces.last(third);
  const double change = throughput(last) / throughput(first) - 1;
  if (std::abs(change) <= kMaxDrift) return std::nullopt;
  if (const auto ratio = throughput_ratio_interval(first, last, kDriftLevel, 0, kEnoughForDrift);
      !ratio || ratio->contains(1))
    return std::nullopt;
  return fmt::format(
      "the throughput {} by {:.0f} % from the first to the last third of the measured steps, so its mean depends on "
      "the length of the run",
      change < 0 ? "fell" : "rose", 100 * std::abs(change));
}

}  // namespace

std::string throttle_reasons(int64_t bits) {
  std::string text;
  for (const auto& [mask, name] : {std::pair{4, "power cap"}, {8, "hardware"}, {32 | 64, "heat"}, {128, "power brake"}})
    if (bits & mask) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

void Conditions::add(const StepRecord& row) {
  if (const auto& retries = row[Metric::alloc_retries]) {
    least_retries_ = std::min(least_retries_.value_or(*retries), *retries);
    most_retries_ = std::max(most_retries_.value_or(*retries), *retries);
  }
  const auto& time = row[Metric::step_ms];
  if (!time) return;
  if (const auto& other = row[Metric::other_cpu_pct]) {
    other_cpu_ += *other * *time;
    other_cpu_ms_ += *time;
  }
  if (const auto& throttle = row[Metric::gpu_throttle]) {
    throttle_known_ms_ += *time;
    if (*throttle != 0) throttled_ms_ += *time;
    throttle_bits_ |= std::llround(*throttle);
  }
}

std::optional<int64_t> Conditions::alloc_retries() const {
  return most_retries_ ? std::optional(std::llround(*most_retries_ - *least_retries_)) : std::nullopt;
}

std::vector<std::string> Conditions::warnings(std::span<const Piece> pieces) const {
  std::vector<std::string> all;
  if (other_cpu_ > kMaxOtherPct * other_cpu_ms_)
    all.push_back(fmt::format("the machine was busy: other programs used {:.0f} % of the CPUs available to this run",
                              other_cpu_ / other_cpu_ms_));
  if (throttled_ms_ > 0) {
    const double share = 100 * throttled_ms_ / throttle_known_ms_;
    all.push_back(fmt::format("the GPU's clock was throttled in steps that make up {} % of the time ({})",
                              share < 1 ? "less than 1" : fmt::format("{:.0f}", share),
                              throttle_reasons(throttle_bits_)));
  }
  if (const int64_t retries = alloc_retries().value_or(0); retries > 0)
    all.push_back(fmt::format(
        "the GPU's memory is nearly full: libtorch's allocator had to empty its cache for {} in the measured steps, "
        "which stalls them; use smaller micro-batches (data.batch_size), 16-bit precision or other settings of the "
        "allocator (app/guide/memory.md)",
        counted(retries, "allocation")));
  if (auto sentence = drift(pieces)) all.push_back(std::move(*sentence));
  return all;
}

}  // namespace trainopt
