#include "debugging/gradcheck/check_case.h"

#include "base/philox.h"
#include "comm/communicator.h"
#include "debugging/gradcheck/gradient_case.h"
#include "debugging/gradcheck/values.h"
#include "device/backend_settings.h"
#include "device/differentiable.h"
#include "device/tensor.h"
#include "train/plan.h"

#include <algorithm>
#include <cmath>

namespace trainopt::gradcheck {
namespace {

// Limits on the values of the largest tensor. In float64 the first is 32 MiB; the second keeps the sixteen evaluations
// for the central differences as cheap as the comparison.
constexpr int64_t kComparedValues = 4 << 20, kDifferencedValues = 256 << 10;
/// With fewer values per channel, batch-norm's gradient is mostly cancellation.
constexpr int64_t kMinTerms = 16;
constexpr uint64_t kDirections = 8;

int64_t min_samples(const GradientCase& each) {
  return (kMinTerms + each.terms_per_sample - 1) / each.terms_per_sample;
}
int64_t compared_samples(const GradientCase& each) {
  return std::max(min_samples(each), std::min(each.batch(), kComparedValues / each.values_per_sample()));
}
int64_t differenced_samples(const GradientCase& each) {
  return std::clamp(kDifferencedValues / each.values_per_sample(), min_samples(each), compared_samples(each));
}

/// Float32 products on this device may round their inputs, to as many digits as float16 has.
at::ScalarType precision_of(const GradientCase& each, const Checked& checked) {
  if (each.rounds_to)
    if (const auto type = each.rounds_to(checked.ours)) return *type;
  const Plan& plan = checked.context.plan;
  const bool rounds = plan.backend.rounds_products() && !plan.device.is_cpu();
  return plan.tensor_format.compute_type == at::kFloat && rounds ? at::kHalf : plan.tensor_format.compute_type;
}

/// The plan's own computation on this rank's samples.
class Ours {
 public:
  Ours(const GradientCase& gradient_case, const Checked& checked, const Tensors& values) : checked_(checked) {
    const Plan& plan = checked.context.plan;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool per_sample = gradient_case.inputs[i].per_sample;
      const auto type = per_sample ? plan.tensor_format.compute_type : at::kFloat;
      const auto format = values[i].dim() == 4 ? plan.tensor_format.memory_format : at::MemoryFormat::Contiguous;
      inputs_.push_back(values[i].to(plan.device, type).contiguous(format));
    }
    for (auto& input : inputs_) input.requires_grad_();
    const auto autocast = checked.precision->autocast();
    evaluated_.output = gradient_case.compute(checked.ours, inputs_);
  }

  bool is_own() const { return has_own_backward(evaluated_.output); }

  const Evaluated& evaluated(const at::Tensor& output_gradient) {
    const at::Tensor& output = evaluated_.output;
    const auto format =
        output.dim() == 4 ? checked_.context.plan.tensor_format.memory_format : at::MemoryFormat::Contiguous;
    evaluated_.run_backward(inputs_, output_gradient.to(output.device(), output.scalar_type()).contiguous(format));
    return evaluated_;
  }

 private:
  const Checked& checked_;
  Tensors inputs_;
  Evaluated evaluated_;
};

bool same_bits(const Evaluated& a, const Evaluated& b) {
  return at::equal(a.output, b.output) &&
         std::equal(a.gradients.begin(), a.gradients.end(), b.gradients.begin(), at::equal);
}

/// The part of a batch over all ranks that this rank has; all of it if each rank has a batch of its own.
class Share {
 public:
  Share(const GradientCase& gradient_case, Communicator& communicator, int64_t samples)
      : case_(gradient_case),
        communicator_(communicator),
        samples_(samples),
        ranks_(gradient_case.over_ranks ? communicator.ranks() : 1) {}

  int64_t all_samples() const { return samples_ * ranks_; }
  at::Tensor mine(const at::Tensor& of_all) const {
    return ranks_ == 1 ? of_all : of_all.narrow(0, communicator_.rank() * samples_, samples_);
  }
  Tensors mine(Tensors of_all) const {
    for (size_t i = 0; i < of_all.size(); ++i)
      if (case_.inputs[i].per_sample) of_all[i] = mine(of_all[i]);
    return of_all;
  }
  /// Each rank has the gradients of parameters from its own samples.
  Tensors over_ranks(Tensors gradients) const {
    for (size_t i = 0; ranks_ > 1 && i < gradients.size(); ++i)
      if (!case_.inputs[i].per_sample) communicator_.all_reduce(gradients[i] = gradients[i].clone())->wait();
    return gradients;
  }

 private:
  const GradientCase& case_;
  Communicator& communicator_;
  int64_t samples_, ranks_;
};

}  // namespace

double CheckedCase::share_of_bound() const {
  return std::max({forward.relative / bound, backward.relative / bound, directions_error / kDirectionsBound});
}

std::optional<CheckedCase> check_case(const GradientCase& gradient_case, const Checked& checked) {
  const at::AutoGradMode grad_mode(true);
  const Plan& plan = checked.context.plan;
  const BackendGuard settings(plan.backend);
  const auto type = plan.tensor_format.compute_type;
  const uint64_t key = mix_key(mix_key(plan.seed, gradient_case.operation), gradient_case.layer);
  CheckedCase result{.samples = compared_samples(gradient_case)};
  const Share share(gradient_case, *checked.context.communicator, result.samples);

  const Tensors values = input_values(gradient_case, share.all_samples(), type, key);
  Ours ours(gradient_case, checked, share.mine(values));
  if (!ours.is_own()) return std::nullopt;
  const Twin twin(gradient_case, checked.plain, values, type, key);
  const at::Tensor output_gradient = share.mine(twin.output_gradient());
  const Evaluated& got = ours.evaluated(output_gradient);

  result.bound =
      rounding_bound(precision_of(gradient_case, checked),
                     std::max(gradient_case.fixed_terms, share.all_samples() * gradient_case.terms_per_sample));
  result.forward = deviation(got.output, share.mine(twin.evaluated().output));
  const Tensors gradients = share.over_ranks(got.gradients), wanted = share.mine(twin.evaluated().gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Deviation each = deviation(gradients[i], wanted[i]);
    if (i > 0 && (each.relative <= result.backward.relative || std::isnan(result.backward.relative))) continue;
    result.backward = each;
    result.gradient = gradient_case.inputs[i].name;
  }
  if (!result.matches() && !gradient_case.over_ranks) {
    Ours again(gradient_case, checked, values);
    result.repeatable = same_bits(again.evaluated(output_gradient), got);
  }

  const Twin small(gradient_case, checked.plain,
                   input_values(gradient_case, differenced_samples(gradient_case), type, key), type, key);
  for (uint64_t i = 0; i < kDirections; ++i) {
    const double error = small.directional_error(mix_key(key, i));
    if (!(error <= result.directions_error)) result.directions_error = error;  // also if it is NaN
  }
  return result;
}

}  // namespace trainopt::gradcheck
