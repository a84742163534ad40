// Training on text whose samples differ in length.
#include "support/catch.h"
#include "support/plans.h"
#include "support/trained_ranks.h"

namespace text_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// Twelve documents of 3 to 40 bytes.
std::string documents() {
  static const TemporaryFolder folder;
  static const bool written = [] {
    for (int i = 0; i < 12; ++i) {
      std::string text;
      for (int at = 0; at < 3 + i * i % 38; ++at) text += static_cast<char>('a' + (at * (i + 3)) % 17);
      std::ofstream(folder / fmt::format("{:02}.txt", i)) << text;
    }
    return true;
  }();
  static_cast<void>(written);
  return folder.path().string();
}

Recipe text_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::gpt2, .layers = 2, .heads = 2, .width = 16, .context = 32, .vocabulary = 256};
  recipe.data.dataset = DatasetKind::documents;
  recipe.data.path = documents();
  recipe.data.batch_size = 4;
  recipe.optimizer = SgdConfig{.lr = 0.1};
  recipe.train.max_steps = 6;
  recipe.debug.find_syncs = true;
  return recipe;
}

/// Tells with how many tokens attention is computed.
class Watched : public AttentionOperations {
 public:
  Watched(std::unique_ptr<AttentionOperations> inner, std::vector<int64_t>& tokens)
      : inner_(std::move(inner)), tokens_(tokens) {}
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override {
    tokens_.push_back(query.size(2));
    return inner_->attention(query, key, value, options, context);
  }

 private:
  std::unique_ptr<AttentionOperations> inner_;
  std::vector<int64_t>& tokens_;
};

struct Result {
  std::vector<double> losses;
  std::vector<int64_t> tokens;
};
Result train(const Recipe& recipe) {
  Result result;
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  plan.operations.attention.wrap("test", "watched",
                                 [&](const BuildContext&, std::unique_ptr<AttentionOperations> inner) {
                                   return std::make_unique<Watched>(std::move(inner), result.tokens);
                                 });
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  result.losses = rows.losses();
  return result;
}

}  // namespace

TEST_CASE("a pass over the largest batch comes first and leaves no trace in the training") {
  Recipe recipe = text_recipe();
  recipe.model.dropout = 0.1;
  recipe.optimizations.fused_optimizer = GENERATE(false, true);
  recipe.optimizations.fp8 = {GENERATE(false, true), {.amax_history = 3}};
  const Result plain = train(recipe);
  recipe.data.warmup_largest = true;
  const Result warmed_up = train(recipe);
  CHECK(warmed_up.losses == plain.losses);
  REQUIRE(warmed_up.tokens.size() == plain.tokens.size() + 4);  // two passes of two layers
  CHECK(warmed_up.tokens.front() == 32);
  CHECK(*std::max_element(plain.tokens.begin(), plain.tokens.end()) <= 32);
  CHECK(*std::min_element(plain.tokens.begin(), plain.tokens.end()) < 32);
}

TEST_CASE("padding, ranks and accumulation do not change what a step of documents computes") {
  const Trained alone = train_as(1, text_recipe());
  Recipe recipe = text_recipe();
  const auto check = [&](int64_t ranks) {
    const Trained other = train_as(ranks, recipe);
    REQUIRE(other.losses.size() == alone.losses.size());
    for (size_t i = 0; i < alone.losses.size(); ++i) CHECK(other.losses[i] == Approx(alone.losses[i]).epsilon(1e-5));
  };
  SECTION("padding to the context") {
    recipe.data.padding = Padding::max;
    check(1);
  }
  SECTION("padding to a power of two") {
    recipe.data.padding = Padding::bucket;
    check(1);
  }
  SECTION("two ranks") {
    recipe.data.batch_size = 2;
    recipe.parallel.sharding_strategy = GENERATE(ShardingStrategy::none, ShardingStrategy::zero3);
    check(2);
  }
  SECTION("accumulation") {
    recipe.data.batch_size = 1;
    recipe.train.gradient_accumulation_steps = 4;
    check(1);
  }
}

}  // namespace text_tests
