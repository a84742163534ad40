// The results of Numerics in words.
#include "base/counted.h"
#include "compare/local_arm.h"
#include "compare/numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
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
    all.push_back("the first gradient as a whole " +
                  distances_text(gradient_direction, gradient_norm, gradient_norm_ratio, noise));
  if (updates.within_tolerance() && !(update_direction.within_tolerance() && update_norm.within_tolerance()))
    all.push_back(fmt::format("the update of the first {} as a whole {}",
                              counted(std::min(steps, kUpdateSteps), "step"),
                              distances_text(update_direction, update_norm, update_norm_ratio, noise)));
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
