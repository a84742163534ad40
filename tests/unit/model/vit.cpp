// The vision transformers against torchvision 0.26. Expected results were computed in float64 with weights and inputs
// from the same formula.
#include "filled.h"
#include "model/task.h"
#include "state_hash.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

const ModelConfig kSmallVit{.name = ModelKind::vit, .patch = 4, .layers = 2, .heads = 3, .width = 24};
const InputShape kVitImage{3, 16, 16};

/// Sums of the absolute values of the gradients of a loss with smoothed labels.
const std::vector<std::pair<std::string, double>> kVitGradients{
    {"class_token", 4.705261799909984},
    {"conv_proj.weight", 59.90278060274497},
    {"conv_proj.bias", 4.698257729374669},
    {"encoder.pos_embedding", 9.956553960070512},
    {"encoder.layers.encoder_layer_0.ln_1.weight", 0.4592758679591311},
    {"encoder.layers.encoder_layer_0.self_attention.in_proj_weight", 32.20859707949422},
    {"encoder.layers.encoder_layer_0.self_attention.in_proj_bias", 3.9440551529974783},
    {"encoder.layers.encoder_layer_0.self_attention.out_proj.weight", 22.684265666191383},
    {"encoder.layers.encoder_layer_0.self_attention.out_proj.bias", 5.188322874770568},
    {"encoder.layers.encoder_layer_1.ln_2.bias", 0.6029554726807542},
    {"encoder.layers.encoder_layer_1.mlp.0.weight", 38.90452221618597},
    {"encoder.layers.encoder_layer_1.mlp.3.weight", 74.09210611054174},
    {"encoder.layers.encoder_layer_1.mlp.3.bias", 3.2248672796491906},
    {"encoder.ln.weight", 1.171422464284808},
    {"heads.head.weight", 28.053129097902},
    {"heads.head.bias", 1.5796387239180127}};

/// Weights from the formula, in float64, so that rounding cannot hide an error.
Model filled_vit(const ModelConfig& config) {
  Model model = make_model(config, kVitImage, at::kCPU, 0);
  fill_by_formula(model);
  const at::NoGradGuard no_grad;
  for (auto [name, tensor] : model.state()) tensor.set_data(tensor.to(at::kDouble));
  return model;
}

at::Generator generator(uint64_t seed) {
  at::Generator made = at::globalContext().defaultGenerator(at::kCPU).clone();
  made.set_current_seed(seed);
  return made;
}

}  // namespace

TEST_CASE("the vits have torchvision's names and shapes, and count attention's operations") {
  struct Network {
    ModelKind kind;
    int64_t parameters;
    uint64_t names;  // torchvision's VisionTransformer with these sizes
    double tokens, width;
  };
  for (const auto& [kind, parameters, names, tokens, width] :
       {Network{ModelKind::vit_b_16, 86567656, 0x10126eb43cbcc97e, 197, 768},
        Network{ModelKind::vit_s_16, 22050664, 0x3194247116a42168, 197, 384}}) {
    INFO(word_of(kind));
    const Model model = make_model({.name = kind, .num_classes = 1000}, {}, at::kMeta, 0);
    CHECK(model.state().size() == 152);
    CHECK(hash_of(model.state()) == names);
    CHECK(model.parameter_count() == parameters);
    const double block = tokens * width * 12 * width + 2 * tokens * tokens * width;
    CHECK(model.flops_per_sample() == 2 * ((tokens - 1) * width * 3 * 16 * 16 + 12 * block + 1000 * width));
    if (kind == ModelKind::vit_b_16)
      CHECK(model.flops_per_sample() / 2e9 == Approx(17.564).margin(5e-4));  // torchvision
    CHECK(model.output_shape() == SampleShape{1000});
    CHECK(model.layer_counts().convolutions() == 1);
    CHECK(model.layer_counts().batch_norms == 0);
    REQUIRE(model.units().size() == 15);
    CHECK(model.units()[0]->name() == "patch_embedding");
    CHECK(model.units()[12]->name() == "encoder.layers.encoder_layer_11");
    CHECK(model.units()[13]->name() == "encoder.ln");
    CHECK(model.unit_state(14).front().first == "heads.head.weight");
  }
}

TEST_CASE("a vit agrees with torchvision in forward and backward") {
  Model model = filled_vit(kSmallVit);
  const at::Tensor input = input_by_formula({2, 3, 16, 16}).to(at::kDouble);
  const auto [loss, outputs] =
      ClassificationTask(0.1).loss(model, input, at::tensor({3, 7}, at::kLong), {.training = true});
  const std::vector<double> expected{-0.48810818581772697, 0.2703225631595167,  1.6288287613106787,
                                     0.42350166111692855,  0.03792120630443352, -0.1526375293386979};
  size_t i = 0;
  for (const int64_t index : {0, 1, 2, 7, 10, 19})
    CHECK(outputs.flatten()[index].item<double>() == Approx(expected[i++]).epsilon(0).margin(1e-9));
  CHECK(loss.item<double>() == Approx(2.835629972372727).epsilon(1e-9));
  loss.backward();
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, tensor] : model.parameters()) parameters[name] = tensor;
  for (const auto& [name, sum] : kVitGradients) {
    INFO(name);
    CHECK(parameters.at(name).grad().abs().sum().item<double>() == Approx(sum).epsilon(1e-8));
  }
  CHECK(at::allclose(model.forward(input, {}), outputs, 1e-12, 1e-12));
}

TEST_CASE("a vit's position embedding follows the images, which must consist of whole patches") {
  const auto positions = [](const InputShape& image) {
    return make_model(kSmallVit, image, at::kMeta, 0).state().at(3).second.size(1);
  };
  CHECK(positions(kVitImage) == 17);
  CHECK(positions({3, 8, 20}) == 11);
  Model wide = make_model(kSmallVit, {1, 8, 20}, at::kCPU, 0);
  CHECK(wide.forward(at::zeros({2, 1, 8, 20}), {}).sizes() == at::IntArrayRef({2, 10}));
  CHECK_THROWS_WITH(make_model({.name = ModelKind::vit_s_16}, {3, 32, 40}, at::kMeta, 0),
                    "model.name: vit_s_16 divides images into patches of 16 × 16 pixels, and 32 × 40 pixels cannot be "
                    "divided so; change the size in data");
}

TEST_CASE("a vit's dropout draws from the given generator and is off in evaluation") {
  ModelConfig config = kSmallVit;
  config.dropout = 0.3;
  Model with = filled_vit(config), without = filled_vit(kSmallVit);
  const at::NoGradGuard no_grad;
  const at::Tensor input = input_by_formula({2, 3, 16, 16}).to(at::kDouble);
  const auto output = [&](uint64_t seed) {
    return with.forward(input, {.training = true, .generator = generator(seed)});
  };
  CHECK(at::equal(output(1), output(1)));
  CHECK_FALSE(at::allclose(output(1), output(2)));
  CHECK(at::equal(with.forward(input, {}), without.forward(input, {})));

  // Whatever a draw of one block drops, the embedding still reaches the output: 7 draws for two blocks.
  at::Generator used = generator(5), counted = generator(5);
  with.forward(input, {.training = true, .generator = used});
  const at::Tensor tokens = at::empty({2, 17, 24}, at::kDouble), hidden = at::empty({2, 17, 96}, at::kDouble);
  tokens.bernoulli_(0.7, counted);
  for (int block = 0; block < 2; ++block) {
    tokens.bernoulli_(0.7, counted);
    hidden.bernoulli_(0.7, counted);
    tokens.bernoulli_(0.7, counted);
  }
  CHECK(at::equal(at::rand({4}, used, at::kDouble), at::rand({4}, counted, at::kDouble)));
}

TEST_CASE("a vit calls the attention of the slot") {
  struct Counting : PlainAttentionOperations {
    mutable std::vector<std::vector<int64_t>> shapes;
    at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const AttentionOptions& options, const ForwardContext& context) const override {
      shapes.push_back(query.sizes().vec());
      CHECK_FALSE(options.causal);
      return PlainAttentionOperations::attention(query, key, value, options, context);
    }
  };
  Model model = make_model(kSmallVit, kVitImage, at::kCPU, 0);
  const auto attention = std::make_shared<Counting>();
  model.set_operations({.attention = attention});
  model.forward(at::zeros({5, 3, 16, 16}), {});
  CHECK(attention->shapes == std::vector<std::vector<int64_t>>(2, {5, 3, 17, 8}));
  CHECK_THROWS_AS(model.set_operations({.attention = nullptr}), BrokenInvariant);
}

TEST_CASE("plain attention is the softmax of scaled products, in values and gradients") {
  const bool causal = GENERATE(false, true);
  const auto input = [](int64_t tokens, uint64_t seed) {
    return at::randn({2, 3, tokens, 8}, generator(seed), at::kDouble).requires_grad_(true);
  };
  const int64_t keys = causal ? 5 : 7;
  const at::Tensor query = input(5, 1), key = input(keys, 2), value = input(keys, 3);
  const at::Tensor got = PlainAttentionOperations().attention(query, key, value, {.causal = causal}, {});
  at::Tensor scores = at::matmul(query, key.transpose(2, 3)).div(std::sqrt(8.0));
  if (causal) scores = scores + at::full({5, 5}, -1e300, at::kDouble).triu(1);
  const at::Tensor wanted = at::matmul(scores.softmax(3), value);
  CHECK(at::allclose(got, wanted, 1e-12, 1e-12));
  const at::Tensor along = at::randn({2, 3, 5, 8}, generator(9), at::kDouble);
  const auto gradients = [&](const at::Tensor& output) {
    (output * along).sum().backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& leaf : {query, key, value}) {
      all.push_back(leaf.grad().clone());
      leaf.mutable_grad().reset();
    }
    return all;
  };
  const auto ours = gradients(got), theirs = gradients(wanted);
  REQUIRE(ours.size() == 3);
  for (size_t i = 0; i < ours.size(); ++i) CHECK(at::allclose(ours[i], theirs[i], 1e-10, 1e-12));
}
