#include "compare/numbers/numerics.h"

#include "compare/arms/local_arm.h"
#include "config/load.h"
#include "data/transform_config.h"
#include "device/tensor.h"
#include "model/weights_file.h"
#include "recipe/make_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

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

TensorPair products(const std::string& name, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.to(at::kDouble).flatten(), right = b.to(at::kDouble).flatten();
  return {.name = name,
          .numbers = left.numel(),
          .aa = left.dot(left).item<double>(),
          .bb = right.dot(right).item<double>(),
          .ab = left.dot(right).item<double>()};
}

/// The pairs in A's order. nullopt: names or shapes differ. `absent_is_zero`: a tensor that only one of them has counts
/// as zeros in the other (a gradient that backward did not reach).
std::optional<std::vector<TensorPair>> pair_tensors(const NamedTensors& a, const NamedTensors& b,
                                                    bool absent_is_zero = false) {
  std::map<std::string, at::Tensor> of_b(b.begin(), b.end());
  std::vector<TensorPair> pairs;
  for (const auto& [name, tensor] : a) {
    const auto found = of_b.find(name);
    if (found == of_b.end() && !absent_is_zero) return std::nullopt;
    const at::Tensor other = found == of_b.end() ? at::zeros_like(tensor) : found->second;
    if (other.sizes() != tensor.sizes()) return std::nullopt;
    pairs.push_back(products(name, tensor, other));
    of_b.erase(name);
  }
  if (!of_b.empty() && !absent_is_zero) return std::nullopt;
  for (const auto& [name, tensor] : of_b) pairs.push_back(products(name, at::zeros_like(tensor), tensor));
  return pairs;
}

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

// Rounding to bfloat16 turns and stretches gradients and updates of a small residual network about as much as the
// perturbed twin does; each of the two is one random draw. With these factors 360 correct changes agree
// (tests/unit/compare/numerics_faults.cpp); with a factor of 4 and no allowance for small tensors, some with bfloat16
// did not.
constexpr double kFactor = 5;
constexpr double kFewNumbers = 2;    // the distance of a tensor of n elements varies by 1/√n of itself between draws
constexpr double kNeighbours = 0.5;  // a tensor that the twin hardly moved may move by this share of the median
// Minimum tolerances, where the twin changes next to nothing. A step in bfloat16 (8 bits: 0.4 % per rounding) may still
// switch a ReLU that the twin did not, and with few samples and units each counts: it turned the gradient of 32 units
// over 8 samples by 0.17. The second still detects a tensor that is 10 % too long.
constexpr double kMinChord = 0.25, kMinNormChange = 0.03;
// A tensor that the twin turns by more than about 40° is half rounding noise in A: neither its direction nor its length
// alone is informative. A tensor that is informative may not be orthogonal to A's.
constexpr double kNoise = 0.7;
constexpr double kMaxChord = 1.4, kUnlimitedChord = 2;

double one_minus_cosine(double chord) { return chord * chord / 2; }

double median_chord(const std::vector<TensorPair>& pairs) {
  std::vector<double> angles;
  for (const TensorPair& pair : pairs) angles.push_back(pair.chord());
  if (angles.empty()) return 0;
  const auto middle = angles.begin() + static_cast<std::ptrdiff_t>(angles.size() / 2);
  std::nth_element(angles.begin(), middle, angles.end());
  return *middle;
}

/// Distances in direction (1 − cosine) and length (|log of the norms' ratio|), of a tensor of B that differs from A's
/// only by rounding.
struct TensorDistance {
  Distance direction, norm;
  /// The larger of the two relative to its tolerance; above 1: beyond it.
  double excess() const {
    return std::max(std::sqrt(direction.value / direction.tolerance), norm.value / norm.tolerance);
  }
};

/// `twin`: the same tensor of A and its perturbed twin. `typical_chord`: the median chord() of tensors of this kind
/// between A and such a twin.
TensorDistance rounding_distance(const TensorPair& b, const TensorPair& twin, double typical_chord) {
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(1, b.numbers)));
  const double factor = kFactor * (1 + kFewNumbers / root);
  const double chord = std::max(twin.chord(), kNeighbours * typical_chord);
  const double max_angle = twin.chord() < kNoise ? std::clamp(factor * chord, kMinChord, kMaxChord) : kUnlimitedChord;
  // A change in a random direction stretches a vector of n elements by 1/√n of what it turns it.
  const double norm_change = std::max(twin.norm_change(), chord / root);
  return {.direction = {one_minus_cosine(b.chord()), one_minus_cosine(max_angle)},
          .norm = {b.norm_change(), std::max(factor * norm_change, kMinNormChange)}};
}

/// Judges all tensors of one kind, given those of A and B, and those of A and its perturbed twin.
TensorAgreement rounding_agreement(const std::vector<TensorPair>& b, const std::vector<TensorPair>& twin) {
  std::map<std::string, TensorPair> of_twin;
  for (const TensorPair& pair : twin) of_twin.emplace(pair.name, pair);
  TensorAgreement result;
  const double typical_chord = median_chord(twin);
  double worst = -1;
  for (const TensorPair& pair : b) {
    const TensorPair& moved = of_twin[pair.name];  // zeros if neither A nor its twin has this gradient
    if (moved.chord() >= kNoise) continue;
    const TensorDistance distance = rounding_distance(pair, moved, typical_chord);
    ++result.tensors;
    if (!distance.direction.within_tolerance() || !distance.norm.within_tolerance()) ++result.beyond;
    if (!(distance.excess() > worst)) continue;
    worst = distance.excess();
    result.worst = pair.name;
    result.direction = distance.direction;
    result.norm = distance.norm;
    result.norm_ratio = pair.norm_ratio();
  }
  return result;
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

double TensorPair::cosine() const {
  if (aa == 0 && bb == 0) return 1;
  return aa > 0 && bb > 0 ? ab / (std::sqrt(aa) * std::sqrt(bb)) : 0;
}

double TensorPair::chord() const { return std::sqrt(std::max(0.0, 2 * (1 - cosine()))); }

double TensorPair::norm_ratio() const { return aa == bb ? 1 : std::sqrt(bb / aa); }

double TensorPair::norm_change() const {
  if (aa == bb) return 0;
  return aa > 0 && bb > 0 ? std::abs(std::log(bb / aa)) / 2 : kZeroNormChange;
}

bool TensorPair::is_finite() const { return std::isfinite(aa) && std::isfinite(bb) && std::isfinite(ab); }

TensorPair combined(const std::vector<TensorPair>& pairs) {
  TensorPair all;
  for (const TensorPair& pair : pairs) {
    all.numbers += pair.numbers;
    all.aa += pair.aa;
    all.bb += pair.bb;
    all.ab += pair.ab;
  }
  return all;
}

namespace {

// Options that determine the samples of a step, their order, random transforms, division into micro-batches, and
// dropout. Options that only affect loading speed are not here. Nor are options that change the model or the update:
// those differences are intended and should be reported.
constexpr std::array kDrawsFollowFrom = {"seed",
                                         "model.dropout",
                                         "data.dataset",
                                         "data.path",
                                         "data.size",
                                         "data.image_size",
                                         "data.batch_size",
                                         "data.global_batch_size",
                                         "data.shuffle",
                                         "data.drop_last",
                                         "data.decode",
                                         "data.transforms",
                                         "data.token_bits",
                                         "data.parquet",
                                         "data.partitions",
                                         "data.shuffle_window",
                                         "data.padding",
                                         "train.gradient_accumulation_steps"};

const Json& at_key(const Json& recipe, std::string key) {
  std::replace(key.begin(), key.end(), '.', '/');
  return recipe.at(Json::json_pointer("/" + key));
}

}  // namespace

Yardstick yardstick(const Recipe& a, const Recipe& b) {
  std::vector<std::string> keys(kDrawsFollowFrom.begin(), kDrawsFollowFrom.end());
  for (const CatalogueEntry& entry : catalogue())
    if (entry.info.other_draws) keys.push_back(entry.key);
  const Json of_a = to_json(a), of_b = to_json(b);
  const bool other_draws =
      std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return at_key(of_a, key) != at_key(of_b, key); });
  return other_draws ? Yardstick::reseeded : Yardstick::perturbed;
}

}  // namespace trainopt
