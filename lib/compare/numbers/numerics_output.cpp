#include "compare/numbers/numerics_output.h"

#include "base/units.h"
#include "compare/arms/local_arm.h"
#include "compare/numbers/numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

Json distance_json(const Distance& d) {
  return {{"value", d.value}, {"tolerance", d.tolerance}, {"within", d.within_tolerance()}};
}
/// Non-finite numbers are written as null.
double number_from(const Json& json) { return json.is_null() ? NAN : json.get<double>(); }
Distance distance_from(const Json& json) { return {number_from(json.at("value")), number_from(json.at("tolerance"))}; }

Json tensors_json(const TensorAgreement& t) {
  return {{"tensors", t.tensors},
          {"beyond", t.beyond},
          {"unchecked", t.unchecked},
          {"worst", t.worst},
          {"direction", distance_json(t.direction)},
          {"norm", distance_json(t.norm)},
          {"norm_ratio", t.norm_ratio}};
}
TensorAgreement tensors_from(const Json& json) {
  return {.tensors = json.at("tensors"),
          .beyond = json.at("beyond"),
          .unchecked = json.value("unchecked", int64_t{0}),
          .worst = json.at("worst"),
          .direction = distance_from(json.at("direction")),
          .norm = distance_from(json.at("norm")),
          .norm_ratio = number_from(json.at("norm_ratio"))};
}

}  // namespace

Json to_json(const Numerics& n) {
  if (!n.not_comparable.empty())
    return {{"comparable", false}, {"agree", Json()}, {"reason", n.not_comparable}, {"too_few_twins", n.too_few_twins}};
  return {{"comparable", true},
          {"agree", n.agree()},
          {"yardstick", word_of(n.yardstick)},
          {"steps", n.steps},
          {"loss_distance", distance_json(n.loss)},
          {"worst_loss_distance", distance_json(n.worst_loss)},
          {"gradient_cosine", 1 - n.gradient_direction.value},
          {"gradient_direction", distance_json(n.gradient_direction)},
          {"gradient_norm_ratio", n.gradient_norm_ratio},
          {"gradient_norm", distance_json(n.gradient_norm)},
          {"update_cosine", 1 - n.update_direction.value},
          {"update_direction", distance_json(n.update_direction)},
          {"update_norm_ratio", n.update_norm_ratio},
          {"update_norm", distance_json(n.update_norm)},
          {"tensors",
           {{"gradients", tensors_json(n.gradients)},
            {"updates", tensors_json(n.updates)},
            {"buffers", tensors_json(n.buffers)}}},
          {"disagreements", n.disagreements()},
          {"not_seen", n.not_seen()},
          {"losses", {{"a", n.losses_a}, {"b", n.losses_b}, {"twin", n.losses_twin}}}};
}

Numerics numerics_from(const Json& json) {
  Numerics n;
  if (!json.at("comparable")) {
    n.not_comparable = json.at("reason");
    n.too_few_twins = json.value("too_few_twins", false);
    return n;
  }
  n.steps = json.at("steps");
  n.loss = distance_from(json.at("loss_distance"));
  n.gradient_direction = distance_from(json.at("gradient_direction"));
  n.gradient_norm = distance_from(json.at("gradient_norm"));
  n.update_norm = distance_from(json.at("update_norm"));
  n.gradient_norm_ratio = json.at("gradient_norm_ratio");
  n.update_norm_ratio = json.at("update_norm_ratio");
  const Json& losses = json.at("losses");
  n.losses_a = losses.at("a").get<std::vector<double>>();
  n.losses_b = losses.at("b").get<std::vector<double>>();
  const bool older = losses.contains("reseeded");  // the format from when a reseeded twin was the only yardstick
  n.yardstick =
      older || json.at("yardstick") == word_of(Yardstick::reseeded) ? Yardstick::reseeded : Yardstick::perturbed;
  n.losses_twin = losses.at(older ? "reseeded" : "twin").get<std::vector<double>>();
  if (older) return n;
  n.worst_loss = distance_from(json.at("worst_loss_distance"));
  n.update_direction = distance_from(json.at("update_direction"));
  n.gradients = tensors_from(json.at("tensors").at("gradients"));
  n.updates = tensors_from(json.at("tensors").at("updates"));
  n.buffers = tensors_from(json.at("tensors").at("buffers"));
  return n;
}

// The results of Numerics in words.

namespace {

double percent(const Distance& log_ratio) { return 100 * std::expm1(log_ratio.tolerance); }

/// What exceeds its tolerance, such as "has a cosine of 0.9100 with A's (0.9800 or more is rounding)".
std::string distances_text(const Distance& direction, const Distance& norm, double norm_ratio, std::string_view noise) {
  if (norm_ratio == 0) return "is zero in B and not in A";
  std::string text;
  if (!direction.within_tolerance())
    text = fmt::format("has a cosine of {:.4f} with A's ({:.4f} or more is {})", 1 - direction.value,
                       1 - direction.tolerance, noise);
  if (!norm.within_tolerance())
    text += fmt::format("{}is {:.3g} times as long as A's (a factor of up to {:.3g} either way is {})",
                        text.empty() ? "" : " and ", norm_ratio, std::exp(norm.tolerance), noise);
  return text;
}

void add(std::vector<std::string>& all, const TensorAgreement& tensors, std::string_view what) {
  if (tensors.within_tolerance()) return;
  all.push_back(fmt::format("the {} of {} {}; {} of {} disagree", what, tensors.worst,
                            distances_text(tensors.direction, tensors.norm, tensors.norm_ratio, "rounding"),
                            with_commas(tensors.beyond), counted(tensors.tensors, "tensor")));
}

}  // namespace

std::vector<std::string> Numerics::disagreements() const {
  const std::string_view noise = yardstick == Yardstick::perturbed ? "rounding" : "the effect of another seed";
  std::vector<std::string> all;
  add(all, gradients, "first gradient");
  add(all, updates, "update");
  add(all, buffers, "buffer change");
  // A single tensor is more informative than the whole vector.
  if (gradients.within_tolerance() && !(gradient_direction.within_tolerance() && gradient_norm.within_tolerance()))
    all.push_back("the first gradients as a whole " +
                  distances_text(gradient_direction, gradient_norm, gradient_norm_ratio, noise));
  if (updates.within_tolerance() && !(update_direction.within_tolerance() && update_norm.within_tolerance()))
    all.push_back("the update of the first steps as a whole " +
                  distances_text(update_direction, update_norm, update_norm_ratio, noise));
  if (!loss.within_tolerance() || !worst_loss.within_tolerance()) {
    const bool mean = !loss.within_tolerance();
    const Distance& shown = mean ? loss : worst_loss;
    all.push_back(fmt::format("the loss curves are {:.2g} % apart {} the first {} (up to {:.2g} % is {})",
                              100 * shown.value, mean ? "over" : "in the worst of", counted(steps, "step"),
                              100 * shown.tolerance, noise));
  }
  return all;
}

std::vector<std::string> Numerics::not_seen() const {
  if (!not_comparable.empty()) return {};
  std::vector<std::string> all{
      fmt::format("anything after the first {}", counted(steps, "step")),
      fmt::format("changes of the learning rate below {:.0f} %", std::ceil(percent(update_norm)))};
  if (yardstick == Yardstick::reseeded) all.push_back("individual tensors and running statistics");
  return all;
}

}  // namespace trainopt
