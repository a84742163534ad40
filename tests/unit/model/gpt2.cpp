// GPT-2 on a few tokens.
#include "device/device.h"
#include "device/tensor.h"
#include "model/model.h"
#include "model/task.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <cmath>

using namespace trainopt;

namespace {

const ModelConfig kSmallGpt2{
    .name = ModelKind::gpt2, .layers = 2, .heads = 2, .width = 8, .context = 6, .vocabulary = 11};
const InputShape kText{.tokens = 6};

at::Tensor some_tokens() { return at::tensor({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}, at::kLong).view({2, 6}); }

}  // namespace

TEST_CASE("gpt2 has the published numbers of parameters, and operations on meta tensors") {
  const auto of = [](std::optional<Gpt2Size> size) {
    return make_model({.name = ModelKind::gpt2, .size = size}, {.tokens = 1024}, at::kMeta, 0);
  };
  CHECK(of({}).parameter_count() == 124'439'808);
  CHECK(of(Gpt2Size::medium).parameter_count() == 354'823'168);
  CHECK(of(Gpt2Size::large).parameter_count() == 774'030'080);
  // Products with the weights of the blocks and of the head, then scores and the values that they weigh.
  const double blocks = 12.0 * 12 * 768 * 768, head = 50257.0 * 768, scores = 12.0 * 2 * 1024 * 768;
  CHECK(of({}).flops_per_sample() == Approx(2 * 1024 * (blocks + head + scores)));
}

TEST_CASE("gpt2 predicts a token from itself and earlier ones only") {
  Model model = make_model(kSmallGpt2, kText, at::kCPU, 0);
  const at::Tensor tokens = some_tokens();
  const at::Tensor logits = model.forward(tokens, {});
  CHECK(logits.sizes() == at::IntArrayRef({2, 6, 11}));
  at::Tensor changed = tokens.clone();
  changed.select(1, 4).fill_(0);
  const at::Tensor others = model.forward(changed, {});
  CHECK(at::allclose(others.narrow(1, 0, 4), logits.narrow(1, 0, 4), 1e-5, 1e-6));
  CHECK_FALSE(at::allclose(others.narrow(1, 4, 2), logits.narrow(1, 4, 2), 1e-3, 1e-3));
  CHECK(at::allclose(model.forward(tokens.narrow(1, 0, 3), {}), logits.narrow(1, 0, 3), 1e-5, 1e-6));
  CHECK_THROWS_AS(model.forward(at::zeros({1, 7}, at::kLong), {}), BrokenInvariant);
}

TEST_CASE("the loss of a language model is the mean over the tokens that are not padding") {
  Model model = make_model(kSmallGpt2, kText, at::kCPU, 0);
  const at::Tensor tokens = some_tokens();
  at::Tensor target = tokens.roll(-1, 1);
  target.select(1, 5).fill_(kIgnoredTarget);
  const TaskOutput got = LanguageModelTask().loss(model, tokens, target, {.training = true});
  CHECK_FALSE(got.outputs.defined());
  const at::Tensor probabilities = model.forward(tokens, {}).log_softmax(-1);
  double sum = 0;
  for (int64_t sample = 0; sample < 2; ++sample)
    for (int64_t position = 0; position < 5; ++position)
      sum -= probabilities[sample][position][target[sample][position].item<int64_t>()].item<double>();
  CHECK(got.loss.item<double>() == Approx(sum / 10).epsilon(1e-5));
  CHECK(std::abs(got.loss.item<double>() - std::log(11)) < 0.3);  // small initial weights predict all tokens alike
}

TEST_CASE("the embedding of gpt2 is also its last layer") {
  Model model = make_model(kSmallGpt2, kText, at::kCPU, 0);
  const auto last = model.units().size() - 1;
  CHECK(model.unit_state(last).empty());
  CHECK(model.units_shared_by(last) == std::vector<size_t>{0});
  for (size_t unit = 0; unit < last; ++unit) CHECK(model.units_shared_by(unit).empty());
  const at::Tensor tokens = some_tokens();
  LanguageModelTask().loss(model, tokens, tokens, {.training = true}).loss.backward();
  const auto [name, embedding] = model.parameters().front();
  CHECK(name == "transformer.wte.weight");
  // Token 7 is not in the batch: the gradient of its row comes from the last layer alone.
  CHECK(embedding.grad()[7].abs().sum().item<double>() > 0);
}

TEST_CASE("dropout in gpt2 draws from the context's generator, and in training only") {
  ModelConfig config = kSmallGpt2;
  config.dropout = 0.3;
  Model model = make_model(config, kText, at::kCPU, 0), plain = make_model(kSmallGpt2, kText, at::kCPU, 0);
  const auto logits = [&](uint64_t seed) {
    return model.forward(some_tokens(), {.training = true, .generator = make_generator(at::kCPU, seed)});
  };
  CHECK(at::equal(logits(1), logits(1)));
  CHECK_FALSE(at::equal(logits(1), logits(2)));
  CHECK(at::allclose(model.forward(some_tokens(), {}), plain.forward(some_tokens(), {}), 1e-5, 1e-6));
}

TEST_CASE(
    "files of gpt2 hold its matrices transposed, with or without a prefix, and may hold masks and the tied head") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "gpt2.safetensors";
  const Model model = make_model(kSmallGpt2, kText, at::kCPU, 3);
  model.save_weights(path);
  NamedTensors saved = load_tensors(path);
  const auto c_fc = std::find_if(saved.begin(), saved.end(),
                                 [](const auto& one) { return one.first == "transformer.h.0.mlp.c_fc.weight"; });
  REQUIRE(c_fc != saved.end());
  CHECK(c_fc->second.sizes() == at::IntArrayRef({8, 32}));

  const auto loads = [&](const NamedTensors& tensors) {
    save_tensors(path, tensors);
    Model other = make_model(kSmallGpt2, kText, at::kCPU, 4);
    other.load_weights(path);
    const NamedTensors wanted = model.parameters(), got = other.parameters();
    for (size_t i = 0; i < wanted.size(); ++i) CHECK(at::equal(got[i].second, wanted[i].second));
  };
  loads(saved);
  NamedTensors without_prefix;
  for (const auto& [name, tensor] : saved) without_prefix.emplace_back(name.substr(12), tensor);
  without_prefix.emplace_back("h.0.attn.bias", at::ones({1, 1, 6, 6}));
  without_prefix.emplace_back("h.0.attn.masked_bias", at::tensor(-1e4));
  loads(without_prefix);
  NamedTensors with_head = saved;
  with_head.emplace_back("lm_head.weight", saved.front().second);
  loads(with_head);
  with_head.back().second = saved.front().second + 1;
  save_tensors(path, with_head);
  Model other = make_model(kSmallGpt2, kText, at::kCPU, 4);
  CHECK_THROWS_WITH(other.load_weights(path),
                    ContainsSubstring("hold transformer.wte.weight twice, and the two differ: Float [11, 8]"));
  NamedTensors of_linear;  // as nanoGPT saves them, and float16
  for (const auto& [name, tensor] : saved) {
    const bool is_matrix = name.find(".c_") != std::string::npos && tensor.dim() == 2;
    of_linear.emplace_back("_orig_mod." + name, is_matrix ? tensor.t().contiguous() : tensor);
  }
  loads(of_linear);
  CHECK(make_model(kSmallGpt2, kText, at::kMeta, 0).fit_weights(path).size() == 2);
  NamedTensors halves;
  for (const auto& [name, tensor] : saved) halves.emplace_back(name, tensor.to(at::kHalf));
  save_tensors(path, halves);
  Model widened = make_model(kSmallGpt2, kText, at::kCPU, 4);
  widened.load_weights(path);
  const NamedTensors exact = model.parameters(), got = widened.parameters();
  for (size_t i = 0; i < got.size(); ++i) CHECK(at::equal(got[i].second, exact[i].second.to(at::kHalf).to(at::kFloat)));
  NamedTensors twice = saved;
  twice.emplace_back("ln_f.weight", at::zeros({8}));
  save_tensors(path, twice);
  CHECK_THROWS_WITH(other.load_weights(path), ContainsSubstring("hold transformer.ln_f.weight twice"));
  save_tensors(path, saved);
  ModelConfig larger = kSmallGpt2;
  larger.vocabulary = 12;
  Model of_other_size = make_model(larger, kText, at::kCPU, 0);
  CHECK_THROWS_WITH(of_other_size.load_weights(path),
                    ContainsSubstring("transformer.wte.weight is Float [11, 8] and not Float [12, 8]"));
  ModelConfig wider = kSmallGpt2;
  wider.width = 16;
  Model of_other_width = make_model(wider, kText, at::kCPU, 0);  // in the order of the file's sizes
  CHECK_THROWS_WITH(of_other_width.load_weights(path),
                    ContainsSubstring("h.0.attn.c_attn.weight is Float [8, 24] and not Float [16, 48]"));
}
