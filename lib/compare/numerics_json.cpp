#include "compare/numerics_json.h"

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
          {"worst", t.worst},
          {"direction", distance_json(t.direction)},
          {"norm", distance_json(t.norm)},
          {"norm_ratio", t.norm_ratio}};
}
TensorAgreement tensors_from(const Json& json) {
  return {.tensors = json.at("tensors"),
          .beyond = json.at("beyond"),
          .worst = json.at("worst"),
          .direction = distance_from(json.at("direction")),
          .norm = distance_from(json.at("norm")),
          .norm_ratio = number_from(json.at("norm_ratio"))};
}

}  // namespace

Json to_json(const Numerics& n) {
  if (!n.not_comparable.empty()) return {{"comparable", false}, {"agree", Json()}, {"reason", n.not_comparable}};
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

}  // namespace trainopt
