#include "model/model.h"
#include "support/catch.h"
#include "support/parameters.h"
#include "train/optimizer/optimizer.h"
#include "train/optimizer/update_rules.h"

#include <ATen/ops/linalg_svdvals.h>

#include <set>

using namespace trainopt;
using namespace trainopt::test;

namespace {

// A single parameter value, so that the published formulas can be written out.
double after_steps(const OptimizerConfig& config, double start, const std::vector<double>& gradients) {
  FixedParameters store({{"w", at::full({1}, start)}});
  const auto optimizer = make_loop_optimizer(config, store);
  for (const double gradient : gradients) {
    store.parameters()[0].second.mutable_grad() = at::full({1}, gradient);
    optimizer->step(store.finish_gradients(), {});
  }
  return store.parameters()[0].second.item<double>();
}

Model small_vit() {
  return make_model({.name = ModelKind::vit, .patch = 4, .layers = 1, .heads = 2, .width = 8},
                    {.channels = 3, .height = 8, .width = 8}, at::kMeta, 0);
}

}  // namespace

TEST_CASE("SGD matches its formula") {
  const double lr = 0.1, m = 0.9, decay = 0.01, w0 = 2, g1 = 0.5, g2 = -0.25;
  const double v1 = g1 + decay * w0, w1 = w0 - lr * v1;
  const double v2 = m * v1 + g2 + decay * w1, w2 = w1 - lr * v2;
  CHECK(after_steps(SgdConfig{.lr = lr, .momentum = m, .weight_decay = decay}, w0, {g1, g2}) == Approx(w2));
  const double n1 = w0 - lr * (v1 + m * v1);
  CHECK(after_steps(SgdConfig{.lr = lr, .momentum = m, .weight_decay = decay, .nesterov = true}, w0, {g1}) ==
        Approx(n1));
  CHECK(after_steps(SgdConfig{.lr = lr, .momentum = 0}, w0, {g1, g2}) == Approx(w0 - lr * (g1 + g2)));
}

TEST_CASE("SGD keeps state per parameter only with momentum") {
  const auto store = some_parameters();
  CHECK(state_tensors(*make_loop_optimizer(SgdConfig{.momentum = 0}, store)) == 0);
  CHECK(state_tensors(*make_loop_optimizer(SgdConfig{.momentum = 0.5}, store)) == store.parameters().size());
}

TEST_CASE("Adam and AdamW match their formulas") {
  const double lr = 0.01, b1 = 0.9, b2 = 0.99, eps = 1e-3, decay = 0.1, w0 = 2, g1 = 0.5, g2 = -0.25;
  const auto expected = [&](bool decoupled) {
    double w = w0, first = 0, second = 0;
    int n = 0;
    for (double g : {g1, g2}) {
      ++n;
      if (decoupled)
        w *= 1 - lr * decay;
      else
        g += decay * w;
      first = b1 * first + (1 - b1) * g;
      second = b2 * second + (1 - b2) * g * g;
      w -= lr * (first / (1 - std::pow(b1, n))) / (std::sqrt(second / (1 - std::pow(b2, n))) + eps);
    }
    return w;
  };
  AdamConfig adam;
  adam.lr = lr, adam.betas = {b1, b2}, adam.eps = eps, adam.weight_decay = decay;
  AdamWConfig adamw;
  static_cast<AdamConfig&>(adamw) = adam;
  CHECK(after_steps(adam, w0, {g1, g2}) == Approx(expected(false)));
  CHECK(after_steps(adamw, w0, {g1, g2}) == Approx(expected(true)));
}

TEST_CASE("weight decay leaves out the parameters that no_decay names") {
  const auto names = [](std::vector<std::string> words) {
    std::set<std::string> spared;
    const SgdConfig config{.weight_decay = 0.1, .common = {.no_decay = std::move(words)}};
    for (const auto& [name, settings] : parameter_settings(config, small_vit()))
      if (settings.weight_decay == 0) spared.insert(name);
    return spared;
  };
  CHECK(names({}).empty());
  CHECK(names({"embedding"}) == std::set<std::string>{"class_token", "encoder.pos_embedding"});
  CHECK(names({"norm"}).size() == 6);
  CHECK(names({"norm"}).contains("encoder.ln.weight"));
  CHECK(names({"bias"}).contains("encoder.layers.encoder_layer_0.self_attention.in_proj_bias"));
  CHECK(names({"bias"}).contains("encoder.ln.bias"));
  CHECK_FALSE(names({"bias", "norm"}).contains("heads.head.weight"));
  CHECK(names({"heads", "conv_proj.bias"}) ==
        std::set<std::string>{"conv_proj.bias", "heads.head.weight", "heads.head.bias"});
  CHECK(names({"head"}) == names({"heads"}));  // the unit's name, and what its parameters' names begin with
  CHECK(names({"patch_embedding"}).contains("conv_proj.weight"));
  CHECK_THROWS_WITH(names({"top"}),
                    "optimizer.no_decay: the model has no such unit or parameter; use norm, bias, "
                    "embedding, a parameter such as heads.head.bias or one of the units "
                    "patch_embedding, encoder.layers.encoder_layer_0, encoder.ln, head: top");

  const auto config = GENERATE(OptimizerConfig(SgdConfig{.weight_decay = 0.1}), OptimizerConfig([] {
                                 AdamWConfig adamw;
                                 adamw.weight_decay = 0.1;
                                 return adamw;
                               }()));
  FixedParameters store({{"decays", at::ones({1})}, {"stays", at::ones({1})}});
  const auto optimizer = make_loop_optimizer(config, store, {{"stays", {}}});
  for (const auto& [name, parameter] : store.parameters()) parameter.mutable_grad() = at::zeros({1});
  optimizer->step(store.finish_gradients(), {});
  CHECK(store.parameters()[0].second.item<double>() == Approx(1 - 0.1 * 0.001));
  CHECK(store.parameters()[1].second.item<double>() == 1);
}

TEST_CASE("LARS and LAMB scale an update by the norm of its parameter, if that decays") {
  const auto change = [](const OptimizerConfig& config, double start) {
    return start - after_steps(config, start, {0.5});
  };
  const auto about = [](double value) { return Approx(value).epsilon(1e-4); };  // a float of 4 has steps of 5e-7
  // LARS: rate · coefficient · |w| ÷ (|g| + decay · |w|) · (g + decay · w), which is rate · coefficient · |w| here.
  CHECK(change(LarsConfig{.weight_decay = 0.1}, 2) == about(0.001 * 2));
  CHECK(change(LarsConfig{.weight_decay = 0.1}, 4) == about(0.001 * 4));
  CHECK(change(LarsConfig{}, 4) == about(0.5));
  CHECK(change(LarsConfig{.always_adapt = true}, 4) == about(0.001 * 4));
  // LAMB: rate · |w|, in the direction of the update.
  CHECK(change(LambConfig{.lr = 0.01, .weight_decay = 0.1}, 2) == about(0.01 * 2));
  CHECK(change(LambConfig{.lr = 0.01}, 2) == about(0.01));
  CHECK(change(LambConfig{.lr = 0.01, .weight_decay = 0.1, .trust_clip = true}, 2) == about(0.01 * 1.2));
  // Of a parameter or gradient that is zero, the ratio is 1.
  CHECK(change(LambConfig{.lr = 0.01, .weight_decay = 0.1}, 0) == about(0.01));
}

TEST_CASE("an overflowed step writes nothing and is not counted") {
  const auto config = GENERATE(
      OptimizerConfig(SgdConfig{.lr = 0.1}), OptimizerConfig(AdamConfig{}), OptimizerConfig(AdamWConfig{}),
      OptimizerConfig(NAdamConfig{}), OptimizerConfig(RmspropConfig{.momentum = 0.5, .centered = true}),
      OptimizerConfig(AdagradConfig{}), OptimizerConfig(LionConfig{}), OptimizerConfig(LarsConfig{.weight_decay = 0.1}),
      OptimizerConfig(LambConfig{.weight_decay = 0.1}), OptimizerConfig(MuonConfig{}));
  auto with = some_parameters(), without = some_parameters();
  std::map<std::string, ParameterSettings> settings;
  if (std::holds_alternative<MuonConfig>(config)) settings["a"].orthogonal = settings["c"].orthogonal = true;
  const auto a = make_loop_optimizer(config, with, settings), b = make_loop_optimizer(config, without, settings);
  const auto fine = at::zeros({}), overflow = at::ones({});
  for (int step = 0; step < 4; ++step) {
    set_gradients(with, step);
    if (step == 1) {
      for (const auto& gradient : with.gradients()) gradient.fill_(std::numeric_limits<float>::infinity());
      a->step(with.finish_gradients(), overflow);
      continue;
    }
    set_gradients(without, step);
    a->step(with.finish_gradients(), fine);
    b->step(without.finish_gradients(), {});
  }
  CHECK(largest_difference(with, without) == 0);
}

TEST_CASE("the rate follows the samples of a step") {
  const auto factor = [](LrScaling scaling, int64_t samples) {
    return learning_rate_factor(SgdConfig{.common = {.lr_scaling = scaling, .reference_batch = 64}}, samples);
  };
  CHECK(factor(LrScaling::linear, 256) == 4);
  CHECK(factor(LrScaling::linear, 16) == 0.25);
  CHECK(factor(LrScaling::sqrt, 256) == 2);
  CHECK(learning_rate_factor(AdamWConfig{}, 256) == 1);
}

TEST_CASE("layer_decay lowers the rate of each unit by its distance from the last") {
  const auto settings = parameter_settings(SgdConfig{.common = {.layer_decay = 0.5}}, small_vit());
  CHECK(settings.at("heads.head.weight").rate == 1);
  CHECK(settings.at("encoder.ln.bias").rate == 0.5);
  CHECK(settings.at("encoder.layers.encoder_layer_0.mlp.0.weight").rate == 0.25);
  CHECK(settings.at("conv_proj.bias").rate == 0.125);
  CHECK(settings.at("class_token").rate == 0.125);
}

TEST_CASE("groups have their own rate and weight decay") {
  const SgdConfig config{
      .lr = 0.1,
      .weight_decay = 0.01,
      .common = {.no_decay = {"bias"},
                 .groups = {{.parameters = {"norm"}, .lr = 0.4}, {.parameters = {"head"}, .weight_decay = 0.5}}}};
  const auto settings = parameter_settings(config, small_vit());
  CHECK(settings.at("encoder.ln.weight").rate == 4);
  CHECK(settings.at("encoder.ln.weight").weight_decay == 0.01);
  CHECK(settings.at("encoder.ln.bias").weight_decay == 0);
  CHECK(settings.at("heads.head.bias").rate == 1);
  CHECK(settings.at("heads.head.bias").weight_decay == 0.5);  // a group is more specific than no_decay
  CHECK(settings.at("conv_proj.weight").rate == 1);

  SgdConfig twice = config;
  twice.common.groups.push_back({.parameters = {"bias"}, .lr = 1.0});
  CHECK_THROWS_WITH(parameter_settings(twice, small_vit()),
                    "optimizer.groups[2].parameters: group 0 has this parameter already: "
                    "encoder.layers.encoder_layer_0.ln_1.bias");
  twice.common.groups[2].parameters = {"top"};
  CHECK_THROWS_WITH(parameter_settings(twice, small_vit()), ContainsSubstring("optimizer.groups[2].parameters: "));

  FixedParameters store({{"common", at::ones({1})}, {"own", at::ones({1})}});
  const auto optimizer = make_loop_optimizer(SgdConfig{.lr = 0.1, .momentum = 0}, store, {{"own", {.rate = 3}}});
  optimizer->set_learning_rate(0.01);
  for (const auto& [name, parameter] : store.parameters()) parameter.mutable_grad() = at::ones({1});
  optimizer->step(store.finish_gradients(), {});
  CHECK(store.parameters()[0].second.item<double>() == Approx(0.99));
  CHECK(store.parameters()[1].second.item<double>() == Approx(0.97));
}

TEST_CASE("Muon makes the momentum of matrices orthogonal, and leaves the rest to AdamW") {
  const MuonConfig config{.lr = 0.1, .ns_dtype = MuonType::float32};
  const auto settings = parameter_settings(config, small_vit());
  CHECK(settings.at("conv_proj.weight").orthogonal);
  CHECK(settings.at("heads.head.weight").orthogonal);
  CHECK_FALSE(settings.at("class_token").orthogonal);
  CHECK_FALSE(settings.at("encoder.ln.weight").orthogonal);
  MuonConfig with_adamw = config;
  with_adamw.adamw_for = {"head"};
  with_adamw.adamw_lr = 0.02;
  const auto mixed = parameter_settings(with_adamw, small_vit());
  CHECK_FALSE(mixed.at("heads.head.weight").orthogonal);
  CHECK(mixed.at("heads.head.weight").rate == Approx(0.2));
  CHECK(mixed.at("conv_proj.weight").rate == 1);

  // Singular values between 0.7 and 1.2, as Jordan et al. state for these coefficients.
  const at::Tensor matrix = at::randn({6, 20}, at::detail::createCPUGenerator(3)),
                   singular = at::linalg_svdvals(orthogonalized(matrix, config));
  CHECK(singular.min().item<double>() > 0.6);
  CHECK(singular.max().item<double>() < 1.3);
  CHECK(orthogonalized(matrix.t(), config).allclose(orthogonalized(matrix, config).t(), 1e-4, 1e-5));

  auto store = some_parameters();
  const auto optimizer = make_loop_optimizer(config, store, {{"a", {.orthogonal = true}}, {"c", {.orthogonal = true}}});
  CHECK(state_tensors(*optimizer) == 2 + 2 + 1);  // two momenta, AdamW's two of b, and the number of updates
  const auto before = some_parameters();
  set_gradients(store, 0);
  optimizer->step(store.finish_gradients(), at::ones({}));
  CHECK(largest_difference(store, before) == 0);
  optimizer->step(store.finish_gradients(), {});
  const at::Tensor change = (before.parameters()[2].second - store.parameters()[2].second).detach().flatten(1);
  CHECK(at::linalg_svdvals(change / 0.1).min().item<double>() > 0.6);  // [2, 12]: a filter is a row
}
