// Checks that every implementation of UpdateKernels must pass, on any device: results match the reference for every
// rule and for everything else that happens in the same pass.
#pragma once

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/update/update.h"
#include "support/catch.h"

#include <functional>
#include <limits>
#include <optional>

namespace trainopt::test {

using namespace trainopt::kernels::update;

/// Tensors of these sizes that are 16-byte aligned or, if `misaligned`, off by one value. The memory around them must
/// not be written.
class PaddedTensors {
 public:
  PaddedTensors(const std::vector<int64_t>& sizes, bool misaligned, at::Device device) : begin_(misaligned ? 1 : 0) {
    for (const int64_t size : sizes)
      memory_.push_back(at::full({size + kAround}, kUntouched, at::TensorOptions(device).dtype(at::kFloat)));
    for (const auto& memory : memory_) tensors.push_back(memory.slice(0, begin_, begin_ + memory.numel() - kAround));
  }
  bool padding_untouched() const {
    return std::all_of(memory_.begin(), memory_.end(), [&](const at::Tensor& memory) {
      return (memory.slice(0, 0, begin_) == kUntouched).all().item<bool>() &&
             (memory.slice(0, begin_ + memory.numel() - kAround) == kUntouched).all().item<bool>();
    });
  }
  void set(const std::function<at::Tensor(int64_t)>& values) {
    for (auto& tensor : tensors) tensor.copy_(values(tensor.numel()));
  }
  std::vector<at::Tensor> tensors;

 private:
  static constexpr int64_t kAround = 8;
  static constexpr float kUntouched = 77;
  int64_t begin_;
  std::vector<at::Tensor> memory_;
};

/// A rule and the state that it needs.
struct RuleCase {
  const char* name;
  int states;  ///< state tensors per parameter
  std::function<int64_t(const UpdateKernels&, const at::Tensor& updates, const Tensors&, const Settings&)> step;
  bool short_gradients = false;  ///< few enough digits that sums of them are exact, so that no rounding turns a sign
};
inline RuleCase sgd_case(const char* name, const SgdRule& rule) {
  return {name, rule.momentum == 0 ? 0 : 1,
          [rule](const UpdateKernels& kernels, const at::Tensor&, const Tensors& tensors, const Settings& settings) {
            return kernels.sgd(rule, tensors, settings);
          }};
}
inline RuleCase adam_case(const char* name, const AdamRule& rule) {
  return {name, 2,
          [rule](const UpdateKernels& kernels, const at::Tensor& updates, const Tensors& tensors,
                 const Settings& settings) { return kernels.adam(rule, updates, tensors, settings); }};
}
/// Betas of few digits, too.
inline RuleCase lion_case(const char* name, const LionRule& rule) {
  return {name, 1,
          [rule](const UpdateKernels& kernels, const at::Tensor&, const Tensors& tensors, const Settings& settings) {
            return kernels.lion(rule, tensors, settings);
          },
          /*short_gradients=*/true};
}
/// Ratios of norms, one for each parameter.
inline at::Tensor ratios_of(const at::Tensor& squares) {
  const at::Tensor norms = squares.sqrt().t();
  return ((norms[0] + 0.1) / (norms[1] + 0.1)).to(at::kFloat);
}
inline Tensors with_rows(Tensors tensors) {
  for (size_t i = tensors.parameters.size(); i-- > 0;) tensors.rows.push_back(static_cast<int64_t>(i));
  return tensors;
}
inline at::Tensor squares_for(const Tensors& tensors, const Settings& settings) {
  return at::zeros({static_cast<int64_t>(tensors.parameters.size()), 2},
                   settings.learning_rate.options().dtype(at::kDouble));
}
inline RuleCase lars_case(const char* name, const SgdRule& rule) {
  return {name, rule.momentum == 0 ? 0 : 1,
          [rule](const UpdateKernels& kernels, const at::Tensor&, const Tensors& all, Settings settings) {
            const Tensors tensors = with_rows(all);
            const at::Tensor squares = squares_for(tensors, settings);
            const int64_t launches = kernels.norms(tensors, settings, squares);
            settings.ratios = ratios_of(squares);
            return launches + kernels.sgd(rule, tensors, settings);
          }};
}
inline RuleCase lamb_case(const char* name, const LambRule& rule) {
  return {name, 2,
          [rule](const UpdateKernels& kernels, const at::Tensor& updates, const Tensors& all, Settings settings) {
            const Tensors tensors = with_rows(all);
            const at::Tensor squares = squares_for(tensors, settings);
            const int64_t launches = kernels.lamb_moments(rule, updates, tensors, settings, squares);
            settings.ratios = ratios_of(squares);
            return launches + kernels.lamb(rule, updates, tensors, settings);
          }};
}
inline const std::vector<RuleCase> kRules = {
    sgd_case("sgd", {.momentum = 0, .weight_decay = 0, .nesterov = false}),
    sgd_case("sgd, weight decay", {.momentum = 0, .weight_decay = 0.1f, .nesterov = false}),
    sgd_case("sgd, momentum", {.momentum = 0.9f, .weight_decay = 0.01f, .nesterov = false}),
    sgd_case("sgd, nesterov", {.momentum = 0.8f, .weight_decay = 0.01f, .nesterov = true}),
    adam_case("adam", {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8f, .weight_decay = 0.1f, .decoupled = false}),
    adam_case("adamw", {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6f, .weight_decay = 0.1f, .decoupled = true}),
    adam_case("adam, betas 0", {.beta1 = 0, .beta2 = 0, .epsilon = 1e-8f, .weight_decay = 0, .decoupled = false}),
    lion_case("lion", {.beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.1f}),
    lars_case("lars", {.momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true}),
    lars_case("lars without momentum", {.momentum = 0, .weight_decay = 0.1f, .nesterov = false}),
    lamb_case("lamb", {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6f, .weight_decay = 0.1f}),
    lamb_case("lamb, no correction",
              {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6f, .weight_decay = 0, .bias_correction = false}),
};

/// Parameters, gradients and state of one trainer; two parameters in three have a 16-bit copy if a type is given.
struct RuleState {
  RuleState(const RuleCase& rule, const std::vector<int64_t>& sizes, bool misaligned, at::Device device,
            std::optional<at::ScalarType> copied_as = std::nullopt)
      : parameters(sizes, misaligned, device),
        gradients(sizes, misaligned, device),
        first(rule.states > 0 ? sizes : std::vector<int64_t>(), false, device),
        second(rule.states > 1 ? sizes : std::vector<int64_t>(), misaligned, device),
        updates(at::zeros({}, at::TensorOptions(device).dtype(at::kDouble))) {
    const auto zeros = [](int64_t count) { return at::zeros({count}); };
    first.set(zeros);
    second.set(zeros);
    for (size_t i = 0; copied_as && i < sizes.size(); ++i)
      copies.push_back(i % 3 == 1 ? at::Tensor()
                                  : at::full({sizes[i] + 1}, 5, at::TensorOptions(device).dtype(*copied_as))
                                        .slice(0, misaligned ? 1 : 0, sizes[i] + (misaligned ? 1 : 0)));
  }
  Tensors all() const { return {parameters.tensors, gradients.tensors, first.tensors, second.tensors, copies}; }
  bool padding_untouched() const {
    return parameters.padding_untouched() && gradients.padding_untouched() && first.padding_untouched() &&
           second.padding_untouched();
  }
  PaddedTensors parameters, gradients, first, second;
  std::vector<at::Tensor> copies;
  at::Tensor updates;
};

inline void check_updated(const char* what, const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(what << " " << i << " of " << got[i].numel());
    CHECK(at::allclose(got[i], wanted[i], 2e-6, 1e-6, /*equal_nan=*/true));
  }
}

/// Runs four steps with `fast` and with the reference; gradients(k, count) returns the gradients of step k.
inline void check_steps(const UpdateKernels& fast, const RuleCase& rule, const std::vector<int64_t>& sizes,
                        bool misaligned, at::Device device, const Settings& settings,
                        const std::function<at::Tensor(int, int64_t)>& gradients,
                        std::optional<at::ScalarType> copied_as = std::nullopt) {
  RuleState ours(rule, sizes, misaligned, device, copied_as), plain(rule, sizes, misaligned, device);
  for (auto* trained : {&ours, &plain}) {
    at::manual_seed(3);
    trained->parameters.set([](int64_t count) { return at::randn({count}); });
  }
  const bool skips = settings.skip_update.defined() && settings.skip_update.item<float>() > 0;
  for (int step = 0; step < 4; ++step) {
    INFO("step " << step);
    for (auto* trained : {&ours, &plain}) {
      at::manual_seed(10 + static_cast<uint64_t>(step));
      trained->gradients.set([&](int64_t count) {
        const at::Tensor some = gradients(step, count);
        return rule.short_gradients ? (some * 64).round() / 64 : some;
      });
    }
    std::vector<at::Tensor> before;
    for (const auto& tensor : ours.parameters.tensors) before.push_back(tensor.clone());
    rule.step(fast, ours.updates, ours.all(), settings);
    rule.step(reference_kernels(), plain.updates, plain.all(), settings);
    check_updated("parameter", ours.parameters.tensors, plain.parameters.tensors);
    check_updated("first", ours.first.tensors, plain.first.tensors);
    check_updated("second", ours.second.tensors, plain.second.tensors);
    for (size_t i = 0; i < sizes.size(); ++i) {
      CHECK(at::allclose(ours.gradients.tensors[i], plain.gradients.tensors[i], 0, 0, /*equal_nan=*/true));
      if (skips) CHECK(ours.parameters.tensors[i].equal(before[i]));
    }
    for (size_t i = 0; i < ours.copies.size(); ++i)
      if (ours.copies[i].defined())
        CHECK(
            ours.copies[i].equal(skips ? at::full_like(ours.copies[i], 5) : ours.parameters.tensors[i].to(*copied_as)));
    CHECK(ours.updates.item<double>() == (rule.states == 2 && !skips ? step + 1 : 0));
  }
  CHECK(ours.padding_untouched());
}

inline at::Tensor on(at::Device device, float value) {
  return at::full({}, value, at::TensorOptions(device).dtype(at::kFloat));
}

inline const std::vector<int64_t> kUpdateSizes = {1, 3, 0, 17, 4097, 4096, 5, 20011};

/// Every rule, with each option of the pass on and off, aligned and unaligned.
inline void check_every_rule(const UpdateKernels& fast, at::Device device) {
  const auto normal = [](int, int64_t count) { return at::randn({count}); };
  for (const RuleCase& rule : kRules)
    for (const bool misaligned : {false, true})
      for (const float factor : {1.0f, 0.25f})
        for (const int skip : {-1, 0, 1}) {
          INFO(rule.name << ", misaligned " << misaligned << ", factor " << factor << ", skip " << skip);
          const Settings settings{.learning_rate = on(device, 0.1f),
                                  .factor = factor == 1 ? at::Tensor() : on(device, factor),
                                  .skip_update = skip < 0 ? at::Tensor() : on(device, static_cast<float>(skip)),
                                  .clears = misaligned == (skip == 1)};
          check_steps(fast, rule, kUpdateSizes, misaligned, device, settings, normal);
          if (factor == 1)
            check_steps(fast, rule, kUpdateSizes, misaligned, device, settings, normal,
                        skip < 0 ? at::kBFloat16 : at::kHalf);
        }
}

/// More tensors than the 512 that one launch takes, and none.
inline void check_many_tensors(const UpdateKernels& fast, at::Device device) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 515; ++i) sizes.push_back(1 + i % 7);
  const Settings settings{
      .learning_rate = on(device, 0.1f), .factor = on(device, 0.5f), .skip_update = {}, .clears = true};
  for (const RuleCase& rule : kRules)
    for (const auto& some : {sizes, std::vector<int64_t>()})
      check_steps(fast, rule, some, false, device, settings, [](int, int64_t count) { return at::randn({count}); });
}

/// NaN and infinity are propagated, and only at their own position.
inline void check_extreme_gradients(const UpdateKernels& fast, at::Device device) {
  for (const RuleCase& rule : kRules)
    for (const float odd :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f, 1e-40f})
      for (const int skip : {0, 1}) {
        INFO(rule.name << " " << odd << ", skip " << skip);
        check_steps(fast, rule, {37, 5}, false, device,
                    {.learning_rate = on(device, 0.1f),
                     .factor = {},
                     .skip_update = on(device, static_cast<float>(skip)),
                     .clears = true},
                    [&](int, int64_t count) {
                      at::Tensor gradient = at::randn({count});
                      gradient[count / 2] = odd;
                      return gradient;
                    });
      }
}

inline void check_measure(const UpdateKernels& fast, const std::vector<at::Tensor>& gradients, at::Device device) {
  const Measured got = fast.measure(gradients, on(device, 0)),
                 wanted = reference_kernels().measure(gradients, on(device, 0));
  CHECK(got.not_finite.item<float>() == wanted.not_finite.item<float>());
  if (wanted.not_finite.item<float>() == 0)
    CHECK(got.square_sum.item<double>() == Approx(wanted.square_sum.item<double>()).epsilon(2e-6));
  else
    CHECK_FALSE(std::isfinite(got.square_sum.item<double>()));
}

inline void check_measures(const UpdateKernels& fast, at::Device device) {
  at::manual_seed(5);
  for (const bool misaligned : {false, true}) {
    PaddedTensors gradients(kUpdateSizes, misaligned, device);
    for (const double scale : {1.0, 1e-12, 1e15}) {
      INFO("misaligned " << misaligned << ", scale " << scale);
      gradients.set([&](int64_t count) { return at::randn({count}) * scale; });
      check_measure(fast, gradients.tensors, device);
    }
    for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()})
      for (const size_t tensor : {0, 3, 4, 7}) {
        INFO("misaligned " << misaligned << ", " << odd << " in tensor " << tensor);
        gradients.set([&](int64_t count) { return at::randn({count}); });
        gradients.tensors[tensor][gradients.tensors[tensor].numel() - 1] = odd;
        check_measure(fast, gradients.tensors, device);
      }
  }
  check_measure(fast, {}, device);
  std::vector<at::Tensor> many;
  for (int64_t i = 0; i < 515; ++i) many.push_back(at::randn({1 + i % 7}).to(device));
  check_measure(fast, many, device);
}

/// A copy is bit-identical to libtorch's cast, whatever the value.
inline void check_copies(const UpdateKernels& fast, at::Device device) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    at::Tensor numbers = at::cat({at::randn({1000}), at::randn({1000}) * 1e-7, at::randn({1000}) * 1e5,
                                  at::randn({1000}) * 1e38, at::arange(4096) / 2048 + 1});
    for (const float odd :
         {0.0f, -0.0f, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), 65519.9f,
          65520.0f, 3.4e38f, 1e-45f, 1.00390625f, 1.01171875f})
      numbers = at::cat({numbers, at::full({1}, odd)});
    const at::Tensor parameter = numbers.to(device), gradient = at::zeros_like(parameter),
                     copy = at::empty_like(parameter, type);
    const auto write = [&] {
      fast.sgd({.momentum = 0, .weight_decay = 0, .nesterov = false}, {{parameter}, {gradient}, {}, {}, {copy}},
               {.learning_rate = on(device, 0), .factor = {}, .skip_update = {}, .clears = false});
    };
    write();
    const at::Tensor cast = parameter.to(type), odd = cast.isnan();  // weight decay 0 turns infinity into NaN
    CHECK(copy.view(at::kShort).masked_select(~odd).equal(cast.view(at::kShort).masked_select(~odd)));
    CHECK(copy.isnan().equal(odd));
    parameter[3] = std::numeric_limits<float>::quiet_NaN();
    write();
    CHECK(copy[3].isnan().item<bool>());
  }
}

/// Gradients with other strides than their parameters would be mixed up.
inline void check_layouts(const UpdateKernels& fast, at::Device device) {
  const at::Tensor parameter = at::zeros({4, 6}).to(device), gradient = at::randn({6, 4}).to(device).t();
  const SgdRule rule{.momentum = 0, .weight_decay = 0, .nesterov = false};
  const Settings settings{.learning_rate = on(device, 1), .factor = {}, .skip_update = {}, .clears = false};
  CHECK_THROWS_AS(fast.sgd(rule, {{parameter}, {gradient}, {}, {}}, settings), BrokenInvariant);
  const at::Tensor same_layout = parameter.t().contiguous().t();
  fast.sgd(rule, {{same_layout}, {gradient}, {}, {}}, settings);
  CHECK(same_layout.equal(-gradient));
}

}  // namespace trainopt::test
