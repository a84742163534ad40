#include "compare/numerics.h"

#include "base/counted.h"
#include "compare/local_arm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

// A training that is right may differ from A by as much as other batches make it differ; one reseeding is one draw of
// that, so norms get three times its distance. The least tolerances are for data on which another seed changes little
// or nothing (synthetic, a full batch): a step in bfloat16 (8 bits: 0.4 % a rounding) stays well within them, a
// gradient that is twice too large (log 2 = 0.69) far outside.
constexpr double kNormFactor = 3;
constexpr double kLeastNorm = 0.05, kMostNorm = 0.5;
constexpr double kLeastLoss = 0.01;
constexpr double kLeastDirection = 0.02, kMostDirection = 0.5;

struct Products {
  double aa = 0, bb = 0, ab = 0;

  double cosine() const { return bb > 0 ? ab / std::sqrt(aa * bb) : 0; }
  double norm_ratio() const { return std::sqrt(bb / aa); }
};

/// Over all tensors of two files as one long vector. nullopt: other names or shapes.
std::optional<Products> products(const std::filesystem::path& file_a, const std::filesystem::path& file_b) {
  const NamedTensors a = load_tensors(file_a), b = load_tensors(file_b);
  if (a.size() != b.size()) return std::nullopt;
  Products all;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].first != b[i].first || a[i].second.sizes() != b[i].second.sizes()) return std::nullopt;
    const at::Tensor left = a[i].second.to(at::kDouble).flatten(), right = b[i].second.to(at::kDouble).flatten();
    all.aa += left.dot(left).item<double>();
    all.bb += right.dot(right).item<double>();
    all.ab += left.dot(right).item<double>();
  }
  return all;
}

double loss_distance(const std::vector<double>& a, const std::vector<double>& b) {
  const size_t steps = std::min(a.size(), b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < steps; ++i) {
    difference += std::abs(a[i] - b[i]);
    size += std::abs(a[i]);
  }
  return size > 0 ? difference / size : 0;
}

/// Of an arm that changes nothing at all: a number, so that it can be written down.
constexpr double kNothing = 1e3;
double log_distance(double ratio) { return ratio > 0 ? std::abs(std::log(ratio)) : kNothing; }

Distance norm_distance(double ratio, double ratio_reseeded) {
  return {log_distance(ratio), std::clamp(kNormFactor * log_distance(ratio_reseeded), kLeastNorm, kMostNorm)};
}

Json distance_json(const Distance& d) {
  return {{"value", d.value}, {"tolerance", d.tolerance}, {"within", d.within()}};
}

}  // namespace

Numerics compare_numbers(const FirstSteps& a, const FirstSteps& b, const FirstSteps& reseeded) {
  Numerics result;
  result.losses_a = a.turn.losses;
  result.losses_b = b.turn.losses;
  result.losses_reseeded = reseeded.turn.losses;
  result.steps = static_cast<int64_t>(std::min(result.losses_a.size(), result.losses_b.size()));
  const auto gradients = products(gradients_file(a.folder), gradients_file(b.folder));
  const auto updates = products(update_file(a.folder), update_file(b.folder));
  if (!gradients || !updates) {
    result.not_comparable = "the arms train different models";
    return result;
  }
  const auto gradients_reseeded = products(gradients_file(a.folder), gradients_file(reseeded.folder));
  const auto updates_reseeded = products(update_file(a.folder), update_file(reseeded.folder));
  TRAINOPT_CHECK(gradients_reseeded && updates_reseeded);
  for (const Products& of : {*gradients, *updates, *gradients_reseeded, *updates_reseeded})
    if (!std::isfinite(of.aa) || !std::isfinite(of.bb) || of.aa == 0) {
      result.not_comparable =
          "a first step overflowed and was skipped (float16 looks for its loss scale), or changed nothing";
      return result;
    }
  result.loss = {loss_distance(result.losses_a, result.losses_b),
                 std::max(kLeastLoss, loss_distance(result.losses_a, result.losses_reseeded))};
  result.gradient_direction = {1 - gradients->cosine(),
                               std::clamp(1 - gradients_reseeded->cosine(), kLeastDirection, kMostDirection)};
  result.gradient_norm_ratio = gradients->norm_ratio();
  result.gradient_norm = norm_distance(result.gradient_norm_ratio, gradients_reseeded->norm_ratio());
  result.update_norm_ratio = updates->norm_ratio();
  result.update_norm = norm_distance(result.update_norm_ratio, updates_reseeded->norm_ratio());
  return result;
}

std::vector<std::string> Numerics::disagreements() const {
  std::vector<std::string> all;
  if (!loss.within())
    all.push_back(fmt::format("the loss curves are {:.2g} % apart over the first {}, those of another seed {:.2g} %",
                              100 * loss.value, counted(steps, "step"), 100 * loss.tolerance));
  if (!gradient_direction.within())
    all.push_back(fmt::format("the first gradients have a cosine of {:.4f}, another seed's {:.4f}",
                              1 - gradient_direction.value, 1 - gradient_direction.tolerance));
  if (!gradient_norm.within())
    all.push_back(fmt::format("B's first gradient is {:.3g} times as long as A's; up to {:.3g} either way is noise",
                              gradient_norm_ratio, std::exp(gradient_norm.tolerance)));
  if (!update_norm.within())
    all.push_back(
        fmt::format("B's first {} change the weights {:.3g} times as much as A's; up to {:.3g} either way is noise",
                    counted(steps, "step"), update_norm_ratio, std::exp(update_norm.tolerance)));
  return all;
}

Json to_json(const Numerics& n) {
  if (!n.not_comparable.empty()) return {{"comparable", false}, {"agree", Json()}, {"reason", n.not_comparable}};
  return {{"comparable", true},
          {"agree", n.agree()},
          {"steps", n.steps},
          {"loss_distance", distance_json(n.loss)},
          {"gradient_cosine", 1 - n.gradient_direction.value},
          {"gradient_direction", distance_json(n.gradient_direction)},
          {"gradient_norm_ratio", n.gradient_norm_ratio},
          {"gradient_norm", distance_json(n.gradient_norm)},
          {"update_norm_ratio", n.update_norm_ratio},
          {"update_norm", distance_json(n.update_norm)},
          {"disagreements", n.disagreements()},
          {"losses", {{"a", n.losses_a}, {"b", n.losses_b}, {"reseeded", n.losses_reseeded}}}};
}

}  // namespace trainopt
