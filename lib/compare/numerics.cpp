#include "compare/numerics.h"

#include "compare/local_arm.h"
#include "compare/numerics_tensors.h"
#include "compare/numerics_tolerance.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

// Tolerances of the losses with the perturbed twin. Losses are means over a batch, so rounding affects them less than
// tensors.
constexpr double kRoundingFactor = 4;
constexpr double kMinLossTolerance = 0.01;
constexpr double kMinWorstLossTolerance = 0.03;  // in one step: bfloat16 caused 1.8 % in a ResNet-18 within ten steps

// Tolerances of whole vectors with the reseeded twin. One reseeding is one random draw of the effect of other batches,
// so the tolerance is three times its distance for norms and 1.5 times for directions and losses. The minimum is the
// effect of another crop stream where another seed happens to change little. The maximum still detects a gradient that
// is twice too long (log 2 = 0.69) or points the other way.
constexpr double kNormFactor = 3, kDrawFactor = 1.5;
constexpr double kMinNormTolerance = 0.2, kMaxNormTolerance = 0.5;
constexpr double kMinDirectionTolerance = 0.02, kMaxDirectionTolerance = 1.2;

/// The tensors from the files of two arms, in pairs. pair_arms() returns nullopt if names or shapes differ.
struct ArmPair {
  std::vector<TensorPair> gradients, updates, buffers;
  TensorPair along_weights;
};
std::optional<ArmPair> pair_arms(const std::filesystem::path& a, const std::filesystem::path& b) {
  auto updates = pair_tensors(load_tensors(update_file(a)), load_tensors(update_file(b)));
  if (!updates) return std::nullopt;
  auto gradients = pair_tensors(load_tensors(gradients_file(a)), load_tensors(gradients_file(b)), true);
  if (!gradients) return std::nullopt;
  for (TensorPair& pair : *gradients) pair.name = pair.name.substr(kGradientPrefix.size());
  ArmPair arms{.gradients = std::move(*gradients), .updates = {}, .buffers = {}, .along_weights = {}};
  for (TensorPair& pair : *updates) {
    if (pair.name == kAlongWeights) {
      arms.along_weights = std::move(pair);
      continue;
    }
    const bool is_buffer = pair.name.starts_with(kBufferPrefix);
    if (is_buffer) pair.name = pair.name.substr(kBufferPrefix.size());
    (is_buffer ? arms.buffers : arms.updates).push_back(std::move(pair));
  }
  return arms;
}

/// Mean and largest distance between the losses of two arms' first steps, relative to the mean loss of A.
struct LossDistances {
  double mean = 0, worst = 0;
};
LossDistances loss_distances(const std::vector<double>& a, const std::vector<double>& b) {
  const size_t steps = std::min(a.size(), b.size());
  double sum = 0, worst = 0, size = 0;
  for (size_t i = 0; i < steps; ++i) {
    sum += std::abs(a[i] - b[i]);
    worst = std::max(worst, std::abs(a[i] - b[i]));
    size += std::abs(a[i]);
  }
  if (size == 0) return {};
  return {.mean = sum / size, .worst = worst * static_cast<double>(steps) / size};
}

void judge_by_rounding(Numerics& result, const ArmPair& b, const ArmPair& twin) {
  const TensorDistance gradient = rounding_distance(combined(b.gradients), combined(twin.gradients), 0),
                       update = rounding_distance(combined(b.updates), combined(twin.updates), 0);
  result.gradient_direction = gradient.direction;
  result.gradient_norm = gradient.norm;
  result.update_direction = update.direction;
  result.update_norm = update.norm;
  result.gradients = rounding_agreement(b.gradients, twin.gradients);
  std::vector<TensorPair> updates = b.updates, twin_updates = twin.updates;
  updates.push_back(b.along_weights);
  twin_updates.push_back(twin.along_weights);
  result.updates = rounding_agreement(updates, twin_updates);
  result.buffers = rounding_agreement(b.buffers, twin.buffers);
}

void judge_by_reseeding(Numerics& result, const ArmPair& b, const ArmPair& twin) {
  const auto direction = [](const TensorPair& of_b, const TensorPair& of_twin) {
    return Distance{1 - of_b.cosine(),
                    std::clamp(kDrawFactor * (1 - of_twin.cosine()), kMinDirectionTolerance, kMaxDirectionTolerance)};
  };
  const auto norm = [](const TensorPair& of_b, const TensorPair& of_twin) {
    return Distance{of_b.norm_change(),
                    std::clamp(kNormFactor * of_twin.norm_change(), kMinNormTolerance, kMaxNormTolerance)};
  };
  const TensorPair gradient = combined(b.gradients), gradient_twin = combined(twin.gradients),
                   update = combined(b.updates), update_twin = combined(twin.updates);
  result.gradient_direction = direction(gradient, gradient_twin);
  result.gradient_norm = norm(gradient, gradient_twin);
  result.update_direction = direction(update, update_twin);
  result.update_norm = norm(update, update_twin);
}

bool sound(const std::vector<TensorPair>& pairs) {
  const TensorPair all = combined(pairs);
  return all.is_finite() && all.aa > 0;
}

}  // namespace

Numerics compare_numbers(const FirstSteps& a, const FirstSteps& b, const FirstSteps& twin, Yardstick yardstick) {
  Numerics result;
  result.yardstick = yardstick;
  result.losses_a = a.turn.losses;
  result.losses_b = b.turn.losses;
  result.losses_twin = twin.turn.losses;
  result.steps = static_cast<int64_t>(std::min(result.losses_a.size(), result.losses_b.size()));
  const auto arms = pair_arms(a.folder, b.folder);
  if (!arms) {
    result.not_comparable = "the arms train different models";
    return result;
  }
  const auto twins = pair_arms(a.folder, twin.folder);
  TRAINOPT_CHECK(twins);
  for (const ArmPair* pair : {&*arms, &*twins})
    if (!sound(pair->gradients) || !sound(pair->updates)) {
      result.not_comparable =
          "a first step overflowed and was skipped (float16 is still adjusting its loss scale), or changed nothing";
      return result;
    }
  result.gradient_norm_ratio = combined(arms->gradients).norm_ratio();
  result.update_norm_ratio = combined(arms->updates).norm_ratio();
  const LossDistances of_b = loss_distances(result.losses_a, result.losses_b),
                      of_twin = loss_distances(result.losses_a, result.losses_twin);
  const bool rounding = yardstick == Yardstick::perturbed;
  const double factor = rounding ? kRoundingFactor : kDrawFactor;
  result.loss = {of_b.mean, std::max(kMinLossTolerance, factor * of_twin.mean)};
  result.worst_loss = {of_b.worst, std::max(kMinWorstLossTolerance, factor * of_twin.worst)};
  if (rounding)
    judge_by_rounding(result, *arms, *twins);
  else
    judge_by_reseeding(result, *arms, *twins);
  return result;
}

bool Numerics::agree() const {
  for (const Distance* distance :
       {&loss, &worst_loss, &gradient_direction, &gradient_norm, &update_direction, &update_norm})
    if (!distance->within_tolerance()) return false;
  return gradients.within_tolerance() && updates.within_tolerance() && buffers.within_tolerance();
}

}  // namespace trainopt
