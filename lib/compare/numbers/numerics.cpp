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

TensorPair products(const std::string& name, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.to(at::kDouble).flatten(), right = b.to(at::kDouble).flatten();
  return {.name = name,
          .numbers = left.numel(),
          .aa = left.dot(left).item<double>(),
          .bb = right.dot(right).item<double>(),
          .ab = left.dot(right).item<double>()};
}

}  // namespace

std::optional<std::vector<TensorPair>> pair_tensors(const NamedTensors& a, const NamedTensors& b, bool absent_is_zero) {
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

namespace {
constexpr int64_t kMostGradientSteps = 5;  // the last that gradient_steps() may name
}

std::optional<std::vector<TensorPair>> pair_gradients(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::vector<TensorPair> all;
  std::map<std::string, size_t> places;
  for (int64_t step = 1; step <= kMostGradientSteps; ++step) {
    const auto of_a = gradients_file(a, step), of_b = gradients_file(b, step);
    if (step > 1 && !(std::filesystem::exists(of_a) && std::filesystem::exists(of_b))) continue;
    const auto pairs = pair_tensors(load_tensors(of_a), load_tensors(of_b), true);
    if (!pairs) return std::nullopt;
    for (const TensorPair& pair : *pairs) {
      const std::string name = pair.name.substr(kGradientPrefix.size());
      const auto [place, is_new] = places.try_emplace(name, all.size());
      if (is_new) all.push_back({.name = name, .steps = 0});
      all[place->second].append(pair);
    }
  }
  return all;
}

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
  auto gradients = pair_gradients(a, b);
  if (!gradients) return std::nullopt;
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

/// The tensors of one kind of every twin.
TwinPairs of_kind(const std::vector<ArmPair>& twins, std::vector<TensorPair> ArmPair::*kind) {
  TwinPairs all;
  for (const ArmPair& twin : twins) all.push_back(twin.*kind);
  return all;
}

void judge_by_rounding(Numerics& result, const ArmPair& b, const std::vector<ArmPair>& twins) {
  const TwinPairs gradients = of_kind(twins, &ArmPair::gradients);
  TwinPairs updates = of_kind(twins, &ArmPair::updates);
  const auto [gradient_direction, gradient_norm] = judge_whole(b.gradients, gradients);
  const auto [update_direction, update_norm] = judge_whole(b.updates, updates);
  result.gradient_direction = gradient_direction;
  result.gradient_norm = gradient_norm;
  result.update_direction = update_direction;
  result.update_norm = update_norm;
  result.gradients = judge_tensors(b.gradients, gradients);
  std::vector<TensorPair> all_updates = b.updates;
  all_updates.push_back(b.along_weights);
  for (size_t twin = 0; twin < twins.size(); ++twin) updates[twin].push_back(twins[twin].along_weights);
  result.updates = judge_tensors(all_updates, updates);
  result.buffers = judge_tensors(b.buffers, of_kind(twins, &ArmPair::buffers));
}

/// The root mean square of a number of each twin.
template <class Twin, class Number>
double root_mean_square(const std::vector<Twin>& twins, Number number) {
  double sum = 0;
  for (const Twin& twin : twins) sum += std::pow(number(twin), 2);
  return std::sqrt(sum / static_cast<double>(twins.size()));
}

void judge_by_reseeding(Numerics& result, const ArmPair& b, const std::vector<ArmPair>& twins) {
  const auto judge = [&](std::vector<TensorPair> ArmPair::*kind, Distance& direction, Distance& norm) {
    const TensorPair of_b = combined(b.*kind);
    const double turned = root_mean_square(twins, [&](const ArmPair&t) { return 1 - combined(t.*kind).cosine(); }),
                 stretched = root_mean_square(twins, [&](const ArmPair&t) { return combined(t.*kind).norm_change(); });
    direction = {1 - of_b.cosine(), std::clamp(kDrawFactor * turned, kMinDirectionTolerance, kMaxDirectionTolerance)};
    norm = {of_b.norm_change(), std::clamp(kNormFactor * stretched, kMinNormTolerance, kMaxNormTolerance)};
  };
  judge(&ArmPair::gradients, result.gradient_direction, result.gradient_norm);
  judge(&ArmPair::updates, result.update_direction, result.update_norm);
}

bool sound(const std::vector<TensorPair>& pairs) {
  const TensorPair all = combined(pairs);
  return all.is_finite() && all.aa > 0;
}

}  // namespace

Numerics compare_numbers(const FirstSteps& a, const FirstSteps& b, std::span<const FirstSteps> twins,
                         Yardstick yardstick) {
  TRAINOPT_CHECK(!twins.empty());
  Numerics result;
  result.yardstick = yardstick;
  result.losses_a = a.turn.losses;
  result.losses_b = b.turn.losses;
  result.losses_twin = twins.front().turn.losses;
  result.steps = static_cast<int64_t>(std::min(result.losses_a.size(), result.losses_b.size()));
  const auto arms = pair_arms(a.folder, b.folder);
  if (!arms) {
    result.not_comparable = "the arms train different models";
    return result;
  }
  std::vector<ArmPair> pairs;
  std::vector<LossDistances> losses;
  for (const FirstSteps& twin : twins) {
    auto pair = pair_arms(a.folder, twin.folder);
    TRAINOPT_CHECK(pair);
    pairs.push_back(*std::move(pair));
    losses.push_back(loss_distances(result.losses_a, twin.turn.losses));
  }
  const auto is_sound = [](const ArmPair& pair) { return sound(pair.gradients) && sound(pair.updates); };
  if (!is_sound(*arms) || !std::all_of(pairs.begin(), pairs.end(), is_sound)) {
    result.not_comparable =
        "a first step overflowed and was skipped (float16 is still adjusting its loss scale), or changed nothing";
    return result;
  }
  const auto overflowed = [](const FirstSteps& steps) { return steps.turn.overflows > 0; };
  if (overflowed(a) || overflowed(b) || std::any_of(twins.begin(), twins.end(), overflowed)) {
    result.not_comparable =
        "a step of the first ones overflowed and was skipped (float16 is still adjusting its loss scale), so the arms "
        "have not taken the same updates";
    return result;
  }
  result.gradient_norm_ratio = combined(arms->gradients).norm_ratio();
  result.update_norm_ratio = combined(arms->updates).norm_ratio();
  const bool rounding = yardstick == Yardstick::perturbed;
  const double factor = rounding ? kRoundingFactor : kDrawFactor;
  const LossDistances of_b = loss_distances(result.losses_a, result.losses_b);
  result.loss = {of_b.mean, std::max(kMinLossTolerance,
                                     factor * root_mean_square(losses, [](const LossDistances& l) { return l.mean; }))};
  result.worst_loss = {of_b.worst,
                       std::max(kMinWorstLossTolerance,
                                factor * root_mean_square(losses, [](const LossDistances& l) { return l.worst; }))};
  (rounding ? judge_by_rounding : judge_by_reseeding)(result, *arms, pairs);
  return result;
}

bool Numerics::agree() const {
  for (const Distance* distance :
       {&loss, &worst_loss, &gradient_direction, &gradient_norm, &update_direction, &update_norm})
    if (!distance->within_tolerance()) return false;
  return gradients.within_tolerance() && updates.within_tolerance() && buffers.within_tolerance();
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
