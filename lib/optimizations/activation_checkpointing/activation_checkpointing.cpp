#include "optimizations/activation_checkpointing/activation_checkpointing.h"

#include "base/clock.h"
#include "base/units.h"
#include "device/autocast.h"
#include "device/differentiable.h"
#include "device/memory.h"
#include "device/product.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "device/trace_range.h"
#include "model/unit.h"
#include "model/weights_file.h"
#include "optimizations/info.h"
#include "train/plan.h"

#include <ATen/record_function.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace trainopt::activation_checkpointing {
namespace {

// A unit whose activations are computed a second time in backward instead of being kept.

struct Recomputation {
  bool keeps_products =
      false;           ///< keeps results of matrix products and convolutions, which are then not computed again
  bool draws = false;  ///< the unit draws random numbers in training
};

/// `state`: all parameters and buffers that `inner` computes with. Same results and gradients as `inner`, in all bits;
/// buffers are updated once.
std::unique_ptr<Unit> make_recomputed_unit(std::unique_ptr<Unit> inner, const NamedTensors& state,
                                           const Recomputation& how);

/// The units whose names `wanted` has.
std::set<size_t> named_units(const Model& model, const std::vector<std::string>& wanted) {
  std::vector<std::string> names;
  for (const auto& unit : model.units()) names.push_back(unit->name());
  std::set<size_t> chosen;
  for (const std::string& name : wanted) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      throw UserError(
          fmt::format("optimizations.activation_checkpointing.units: the model has no unit {}; its {} are {}", name,
                      counted(static_cast<int64_t>(names.size()), "unit"), fmt::join(names, ", ")));
    chosen.insert(static_cast<size_t>(found - names.begin()));
  }
  return chosen;
}

/// Every n-th block. The first and the last unit keep what they compute: they run once each, and little lies between
/// the last unit's forward and its backward.
std::set<size_t> every_nth_block(const Model& model, int64_t n) {
  std::set<size_t> chosen;
  int64_t block = 0;
  for (size_t unit = 1; unit + 1 < model.units().size(); ++unit)
    if (model.unit_flops()[unit] > 0 && ++block % n == 0) chosen.insert(unit);
  return chosen;
}

/// Parameters and buffers that the unit computes with, tied weights of other units included.
NamedTensors state_of(const Model& model, size_t unit) {
  NamedTensors state = model.unit_parameters(unit);
  for (const auto& entry : model.unit_state(unit))
    if (!entry.second.requires_grad()) state.push_back(entry);
  return state;
}

void wrap_units(Model& model, const std::set<size_t>& chosen, const Recomputation& how) {
  size_t unit = 0;
  model.wrap_units([&](std::unique_ptr<Unit> inner) {
    const size_t index = unit++;
    if (!chosen.contains(index)) return inner;
    return make_recomputed_unit(std::move(inner), state_of(model, index), how);
  });
}

Receipt receipt(const StepTrace& seen, bool on_gpu) {
  int64_t units = 0;
  double kept_bytes = 0, computed_bytes = 0, microseconds = 0;
  for (const auto& [operation, calls] : seen.operations) {
    if (operation.name != kRecomputedLabel) continue;
    const auto sum_of = [&](size_t i) { return static_cast<double>(calls * operation.number(i)); };
    units += calls;
    kept_bytes += sum_of(0), computed_bytes += sum_of(1), microseconds += sum_of(2);
  }
  if (units == 0)
    return {.observed = "no unit was computed again", .effective = false, .reason = "nothing ran backward"};
  // A GPU works later than the host that asks it to.
  const std::string time = on_gpu ? "" : fmt::format(", in {:.1f} ms", microseconds / 1e3);
  return {.observed = fmt::format("{} computed again in backward{}: {} of activations kept, {} not kept",
                                  counted(units, "unit"), time, human_bytes(kept_bytes),
                                  human_bytes(std::max(computed_bytes, 0.0)))};
}

}  // namespace

void check(OptionChecks& checks, const Config& config) {
  if (config.every && !config.units.empty())
    checks.refuse("optimizations.activation_checkpointing.every", "units names the units; remove one of the two");
}

Outcome apply(Plan& plan, const Config& config) {
  const Model model = plan.model.shapes();
  const auto chosen =
      config.units.empty() ? every_nth_block(model, config.every.value_or(1)) : named_units(model, config.units);
  if (chosen.empty())
    return Outcome::none(fmt::format("the {} has fewer than {} between its first and its last unit", plan.model.noun(),
                                     counted(config.every.value_or(1), "block")));
  double flops = 0;
  for (const size_t unit : chosen) flops += model.unit_flops()[unit];
  const bool draws = plan.model.layers.draws, selective = config.policy == Policy::selective;
  plan.rewinds_random_state |= draws;
  plan.wrap_model.push_back([chosen, how = Recomputation{.keeps_products = selective, .draws = draws}](Model& built) {
    wrap_units(built, chosen, how);
  });
  const std::string units =
      fmt::format("{} of {}", chosen.size(), counted(static_cast<int64_t>(model.units().size()), "unit"));
  const std::string what =
      selective ? fmt::format("{} keep their input and their products; the rest is computed again in backward", units)
                : fmt::format(
                      "{} keep only their input and are computed again in backward: at most {:.0f} % more "
                      "operations",
                      units, 100 * flops / (3 * model.flops_per_sample()));
  return Outcome::applied(what,
                          [on_gpu = plan.device.is_cuda()](const StepTrace& seen) { return receipt(seen, on_gpu); });
}

namespace {

/// Bytes of tensors that the step's work has left so far. On a CPU these are this thread's, so that the loader's
/// threads do not count; on a GPU all, because only the step allocates there meanwhile.
int64_t live_bytes(at::Device device) {
  return device.is_cuda() ? memory_stats(device)->allocated : cpu_tensor_bytes_of_thread();
}

/// Sets the generator back to `state`, and at its end to what it was before.
class Rewound {
 public:
  Rewound(const std::optional<at::Generator>& generator, const at::Tensor& state) {
    if (!state.defined()) return;
    generator_ = generator;
    now_ = generator_->get_state();
    generator_->set_state(state);
  }
  ~Rewound() {
    if (generator_) generator_->set_state(now_);
  }
  Rewound(const Rewound&) = delete;
  Rewound& operator=(const Rewound&) = delete;

 private:
  std::optional<at::Generator> generator_;
  at::Tensor now_;
};

/// Restores the values of `buffers` at its end. Autograd does not notice, because batch-norm's backward in training
/// does not read the statistics that it has saved.
class Unchanged {
 public:
  explicit Unchanged(const std::vector<at::Tensor>& buffers) : buffers_(buffers) {
    for (const at::Tensor& buffer : buffers_) values_.push_back(buffer.clone());
  }
  ~Unchanged() {
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].variable_data().copy_(values_[i]);
  }
  Unchanged(const Unchanged&) = delete;
  Unchanged& operator=(const Unchanged&) = delete;

 private:
  const std::vector<at::Tensor>& buffers_;
  std::vector<at::Tensor> values_;
};

class RecomputedUnit : public WrappedUnit {
 public:
  RecomputedUnit(std::unique_ptr<Unit> inner, const NamedTensors& state, const Recomputation& how)
      : WrappedUnit(std::move(inner)), how_(how) {
    for (const auto& [name, tensor] : state) (tensor.requires_grad() ? parameters_ : buffers_).push_back(tensor);
  }

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    if (!at::GradMode::is_enabled()) return inner_->forward(input, context);
    const auto first = std::make_shared<First>(context, autocast_type(input.device().type()));
    // The parameters are inputs as well, so that their gradients reach them through the graph around this unit: once,
    // and summed with those of other units.
    std::vector<at::Tensor> inputs{input};
    inputs.insert(inputs.end(), parameters_.begin(), parameters_.end());
    return differentiable(
        inputs, [&](std::vector<at::Tensor>& saved) { return run_first(*first, input, saved); },
        [this, first](const BackwardCall& call) { return backward(*first, call); });
  }

 private:
  /// The circumstances of the first computation.
  struct First {
    First(const ForwardContext& context_, std::optional<at::ScalarType> autocast_)
        : context(context_), autocast(autocast_) {}
    ForwardContext context;
    std::optional<at::ScalarType> autocast;
    at::Tensor random_state;          ///< undefined if nothing is drawn
    std::vector<at::Tensor> buffers;  ///< as they were before, if the unit reads what it changes; empty otherwise
    std::vector<ProductCall> products;
  };

  /// Saves the input and one tensor per product.
  at::Tensor run_first(First& first, const at::Tensor& input, std::vector<at::Tensor>& saved) {
    saved.push_back(input);
    if (how_.draws && first.context.training) first.random_state = first.context.generator->get_state();
    if (inner_->reads_what_it_changes())
      for (const at::Tensor& buffer : buffers_) first.buffers.push_back(buffer.clone());
    KeepProducts keeping;
    at::Tensor output = inner_->forward(input, first.context);
    Products products = keeping.take();
    first.products = std::move(products.calls);
    for (at::Tensor& result : products.results) {
      const bool is_needless = inner_->ends_in_sum() && &result == &products.results.back();
      if (is_needless && result.defined())
        saved.push_back(without_values(result));
      else
        saved.push_back(how_.keeps_products ? result : at::Tensor());
    }
    return output;
  }

  std::vector<at::Tensor> backward(const First& first, const BackwardCall& call) {
    const auto began = Clock::now();
    const int64_t before = live_bytes(call.gradient.device());
    at::Tensor input = call.saved[0].detach();
    if (call.needed[0]) input.requires_grad_();
    const at::Tensor output = run_again(first, input, {call.saved.begin() + 1, call.saved.end()});
    post(call, before, began);
    std::vector<at::Tensor> wanted;
    for (size_t i = 0; i < call.needed.size(); ++i)
      if (call.needed[i]) wanted.push_back(i == 0 ? input : parameters_[i - 1]);
    auto found = gradients_of(output, call.gradient, wanted);
    std::vector<at::Tensor> gradients(call.needed.size());
    for (size_t i = 0, next = 0; i < gradients.size(); ++i)
      if (call.needed[i]) gradients[i] = std::move(found[next++]);
    return gradients;
  }

  at::Tensor run_again(const First& first, const at::Tensor& input, std::vector<at::Tensor> products) {
    const MemoryScope scope({.use = MemoryUse::activations, .phase = "recomputation"});
    const TraceRange range("recomputation");
    const Rewound random(first.context.generator, first.random_state);
    const Unchanged buffers(buffers_);
    for (size_t i = 0; i < first.buffers.size(); ++i) buffers_[i].variable_data().copy_(first.buffers[i]);
    const at::AutoGradMode differentiated(true);
    const AutocastGuard autocast(input.device().type(), first.autocast);
    const RepeatProducts repeated({.calls = first.products, .results = std::move(products)});
    return inner_->forward(input, first.context);
  }

  static void post(const BackwardCall& call, int64_t before, Clock::time_point began) {
    int64_t kept = 0;
    for (const at::Tensor& tensor : call.saved)
      if (tensor.defined()) kept += static_cast<int64_t>(tensor.storage().nbytes());
    const int64_t computed = live_bytes(call.gradient.device()) - before;
    RECORD_FUNCTION(kRecomputedLabel,
                    (std::vector<c10::IValue>{kept, computed, static_cast<int64_t>(seconds_since(began) * 1e6)}));
  }

  Recomputation how_;
  std::vector<at::Tensor> parameters_, buffers_;
};

std::unique_ptr<Unit> make_recomputed_unit(std::unique_ptr<Unit> inner, const NamedTensors& state,
                                           const Recomputation& how) {
  return std::make_unique<RecomputedUnit>(std::move(inner), state, how);
}

}  // namespace

}  // namespace trainopt::activation_checkpointing
