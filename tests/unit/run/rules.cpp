// Which changes of a recipe the rules propose, and with which estimated gains.
#include "run/rules.h"

#include "base/files/files.h"
#include "config/load.h"
#include "data/transform_config.h"
#include "kernels/winograd/winograd.h"
#include "optimizations/amp/amp.h"
#include "recipe/make_plan.h"
#include "support/temporary_folder.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <string_view>

namespace trainopt {
namespace {

/// Training and test images, all black.
const TemporaryFolder& cifar10() {
  static const TemporaryFolder folder;
  for (const char* name : {"data_batch_1.bin", "test_batch.bin"})
    write_file(folder.path() / name, std::string(64 * 3073, '\0'));
  return folder;
}

Recipe recipe_with(const Words& words, int64_t ranks) {
  Words all{"data.dataset=cifar10", "data.path=" + cifar10().path().string(), "data.batch_size=8", "train.max_steps=4",
            "data.transforms=[{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]"};
  all.insert(all.end(), words.begin(), words.end());
  const auto recipe = with_words(Recipe{}, all, ranks);
  if (!recipe) throw std::runtime_error("no recipe: " + text_of(all));
  return *recipe;
}

/// A run of which the named parts take these shares of the time.
class Run {
 public:
  explicit Run(const Words& words, std::vector<TimePart> parts, RankPosition position = {}, int cores = 4)
      : recipe_(recipe_with(words, position.ranks)),
        plan_(make_plan(recipe_, Machine{.cpu = "test", .cores = cores}, position)) {
    limit_.parts = std::move(parts);
    limit_.noise_pct = 1;
    times_.step.mean_ms = 100;
  }
  Situation situation() const { return {.recipe = recipe_, .plan = plan_, .times = times_, .limit = limit_}; }
  std::vector<Proposal> proposals() const { return propose(situation()); }
  Limit& limit() { return limit_; }
  RunTimes& times() { return times_; }

 private:
  Recipe recipe_;
  Plan plan_;
  RunTimes times_;
  Limit limit_;
};

const Proposal* find(const std::vector<Proposal>& all, const std::string& word) {
  for (const Proposal& each : all)
    if (text_of(each.change).find(word) != std::string::npos) return &each;
  return nullptr;
}

}  // namespace

TEST_CASE("each rule names a part of the time, and options that exist") {
  const std::set<std::string> parts{"loader",   "copy",    "computing",  "launches",    "update",
                                    "exchange", "records", "evaluation", "checkpoints", "per step"};
  std::set<std::string> options;
  for (const OptionHelp& option : options_of<Recipe>()) options.insert(option.path);
  for (const auto& words : {Words{"data.num_workers=1", "optimizations.activation_checkpointing=true", "model.name=mlp",
                                  "evaluation.every_n_steps=2", "checkpoint.every_n_steps=2",
                                  "parallel.sharding_strategy=zero3", "train.gradient_accumulation_steps=4"},
                            Words{"data.batch_size=4"}}) {
    const Run run(words, {}, {.rank = 0, .ranks = 2, .local_rank = 0, .local_ranks = 2});
    for (const Rule& rule : rules()) {
      INFO(rule.what);
      CHECK(parts.contains(rule.part));
      for (const Words& change : rule.changes(run.situation()))
        for (const std::string& word : change) {
          INFO(word);
          CHECK(options.contains(word.substr(0, word.find('='))));
        }
    }
  }
}

TEST_CASE("a loader in the training thread gets threads") {
  const Run run({"model.name=mlp"}, {{"loader", 50}, {"compute", 50}});
  const auto proposals = run.proposals();
  const Proposal* threads = find(proposals, "data.num_workers=");
  REQUIRE(threads);
  CHECK(threads->ratio == Approx(1 / (1 - 0.5 * 0.75)));  // of four cores, loading then takes one fourth of its time
  CHECK(threads->exactness == Exactness::same_bits);
  CHECK(threads->from == 0);
  CHECK(threads->evidence == "loader is 50 % of the time");
  for (size_t i = 1; i < proposals.size(); ++i) CHECK(proposals[i - 1].ratio >= proposals[i].ratio);
}

TEST_CASE("more requests at once are proposed where their answers do not wait for each other") {
  Run run({"model.name=mlp"}, {{"storage", 60}, {"compute", 40}});
  CHECK(run.situation().share("loader") == Approx(0.6));  // for the rules that spare waiting for data
  const auto found = std::find_if(rules().begin(), rules().end(), [](const Rule& rule) {
    return std::string_view(rule.what) == "fetch more at once from object storage";
  });
  REQUIRE(found != rules().end());
  CHECK(found->changes(run.situation()).empty());
  StorageUse use{.concurrency = 32};
  use.speed = {.reads = 900, .active_s = 10, .reading_s = 310, .fast_ms = 20, .median_ms = 22, .slow_ms = 90};
  run.times().storage = use;
  CHECK(found->changes(run.situation()) == std::vector<Words>{{"data.storage.concurrency=64"}});
  run.times().storage->speed.median_ms = 80;
  CHECK(found->changes(run.situation()).empty());
}

TEST_CASE("a larger batch brings its learning rate, and is other training") {
  const std::vector<TimePart> parts{{"compute", 30}, {"launches", 60}, {"loader", 10}};
  const auto grown = Run({"model.name=mlp", "optimizer.name=sgd"}, parts).proposals();
  const Proposal* larger = find(grown, "data.batch_size=64");
  REQUIRE(larger);
  CHECK(text_of(larger->change) == "data.batch_size=64 optimizer.lr_scaling=linear optimizer.reference_batch=8");
  CHECK(larger->exactness == Exactness::new_math);
  CHECK(larger->ratio == Approx(1 / (1 - 0.6 * 7 / 8)));  // an eighth of the operations' starts is left
  CHECK(find(Run({"model.name=mlp", "optimizer.name=adamw"}, parts).proposals(), "optimizer.lr_scaling=sqrt"));
  const Words scaled{"model.name=mlp", "optimizer.lr_scaling=linear", "optimizer.reference_batch=4"};
  CHECK(text_of(find(Run(scaled, parts).proposals(), "data.batch_size=64")->change) == "data.batch_size=64");
  CHECK_FALSE(find(Run({"model.name=mlp", "data.global_batch_size=8"}, parts).proposals(), "data.batch_size="));
}

TEST_CASE("where memory binds, activations are recomputed for larger micro-batches") {
  Run run({"model.name=mlp", "data.batch_size=1", "train.gradient_accumulation_steps=8"},
          {{"compute", 20}, {"launches", 70}, {"loader", 10}});
  run.times().step.mfu_pct = 1;
  const char* change =
      "data.batch_size=8 train.gradient_accumulation_steps=1 "
      "optimizations.activation_checkpointing=true";
  Situation situation = run.situation();
  CHECK_FALSE(find(propose(situation), change));
  situation.memory_peak_pct = 95;
  const auto bound = propose(situation);
  REQUIRE(find(bound, change));
  CHECK(find(bound, change)->ratio < find(bound, "data.batch_size=8 train.gradient_accumulation_steps=1")->ratio);
}

TEST_CASE("nothing is proposed that is on, or does nothing here") {
  const std::vector<TimePart> all{{"compute", 40}, {"update", 30}, {"loader", 10}, {"copy", 10}, {"launches", 10}};
  const auto off = Run({"model.name=mlp"}, all).proposals();
  CHECK(find(off, "fused_optimizer"));
  CHECK(find(off, "fused_kernels"));
  for (const char* gpu : {"pin_memory", "cuda_graph", "tf32", "cudnn_benchmark", "cuda_allocator"}) {
    INFO(gpu);
    CHECK_FALSE(find(off, gpu));
  }
  CHECK_FALSE(find(off, "overlap_comm"));
  CHECK_FALSE(find(off, "winograd"));  // an mlp does not convolve
  const auto on = Run({"model.name=mlp", "optimizations.fused_optimizer=true", "optimizations.fused_kernels=true"}, all)
                      .proposals();
  CHECK_FALSE(find(on, "fused_optimizer"));
  CHECK_FALSE(find(on, "fused_kernels"));
}

TEST_CASE("what would gain less than the noise does not stand out, and what would gain nothing is not proposed") {
  Run run({"model.name=mlp"}, {{"compute", 70}, {"update", 30}});
  CHECK(find(run.proposals(), "fused_optimizer")->stands_out);
  run.limit().noise_pct = 30;
  REQUIRE(find(run.proposals(), "fused_optimizer"));
  CHECK_FALSE(find(run.proposals(), "fused_optimizer")->stands_out);
  run.limit().noise_pct.reset();
  CHECK_FALSE(find(run.proposals(), "fused_optimizer")->stands_out);
  CHECK_FALSE(find(Run({"model.name=mlp"}, {{"compute", 98.6}, {"update", 1.4}}).proposals(), "fused_optimizer"));
}

TEST_CASE("the update counts with the starts of its operations") {
  Run run({"model.name=mlp"}, {{"launches", 80}, {"compute", 15}, {"update", 5}});
  run.limit().update_pct = 50;
  CHECK(find(run.proposals(), "fused_optimizer")->ratio == Approx(1 / (1 - 0.5 * 0.6)));
}

TEST_CASE("kept memory saves what the page faults of a step take on this machine") {
  Run run({"optimizations.host_allocator=false"}, {{.name = "compute", .share_pct = 80}});
  const auto estimate = [&](std::optional<double> faults, std::optional<double> fault_us) {
    Situation situation = run.situation();
    situation.page_faults = faults;
    situation.peaks.emplace().page_fault_us = fault_us;
    const auto proposals = propose(situation);
    const Proposal* proposal = find(proposals, "host_allocator");
    return proposal ? proposal->ratio : 1;
  };
  CHECK(estimate(10'000, 2) == Approx(1 / (1 - 0.2)));  // 20 of 100 ms
  CHECK(estimate(10'000, std::nullopt) == Approx(1 / (1 - 0.025)));
  CHECK(estimate(100'000, 2) == Approx(1 / (1 - 0.4)));  // half of all computing at most
  CHECK(estimate(10, 2) == 1);
  CHECK(estimate(std::nullopt, 2) == 1);
}

TEST_CASE("products of bfloat16 are proposed for Winograd where it computes in 16 bits") {
  const char* const change = "optimizations.winograd={products: bfloat16}";
  const auto proposals = [](const Words& words) { return Run(words, {{"compute", 100}}).proposals(); };
  const auto found = proposals({"optimizations.winograd=true", "optimizations.amp=true"});
  if (kernels::winograd::has_bfloat16_products() && !__builtin_cpu_supports("amx-bf16")) {
    REQUIRE(find(found, change));
    CHECK(find(found, change)->exactness == Exactness::new_math);
  } else
    CHECK_FALSE(find(found, change));
  CHECK_FALSE(find(proposals({"optimizations.winograd=true"}), change));
  CHECK_FALSE(find(proposals({"optimizations.amp=true"}), change));
}

TEST_CASE("16 bits are proposed where they are faster, and given up where they are slower") {
  const auto proposals = [](const Words& words, double flops_of_bfloat16) {
    const Run run(words, {{"compute", 100}});
    Situation situation = run.situation();
    situation.peaks.emplace();
    situation.peaks->products = {{"float32", {.flops_per_s = 1e11}}, {"bfloat16", {.flops_per_s = flops_of_bfloat16}}};
    return propose(situation);
  };
  // Whatever a measurement says, not on a CPU without such instructions.
  CHECK((find(proposals({"model.name=mlp"}, 3e11), "amp=true") != nullptr) == amp::cpu_convolves(at::kBFloat16));
  CHECK_FALSE(find(proposals({"model.name=mlp"}, 1e10), "amp=true"));
  const auto slow = proposals({"model.name=mlp", "optimizations.amp=true"}, 1e10);
  REQUIRE(find(slow, "amp=false"));
  CHECK(find(slow, "amp=false")->ratio == Approx(10));
  CHECK_FALSE(find(proposals({"model.name=mlp", "optimizations.amp=true"}, 3e11), "amp="));
}

TEST_CASE("intervals become longer, and micro-batches larger") {
  const auto proposals = Run({"model.name=mlp", "evaluation.every_n_steps=10", "checkpoint.every_n_steps=3"},
                             {{"evaluation", 40}, {"checkpoints", 20}, {"records", 10}, {"compute", 30}})
                             .proposals();
  CHECK(find(proposals, "evaluation.every_n_steps=100"));
  CHECK(find(proposals, "checkpoint.every_n_steps=30"));
  CHECK(find(proposals, "logging.every_n_steps=10"));

  const Words pieces{"data.batch_size=2", "train.gradient_accumulation_steps=16"};
  Words mlp = pieces, resnet = pieces;
  mlp.push_back("model.name=mlp");
  const auto larger = Run(mlp, {{"launches", 60}, {"compute", 40}}).proposals();
  const Proposal* same = find(larger, "data.batch_size=32 train.gradient_accumulation_steps=1");
  REQUIRE(same);
  CHECK(same->exactness == Exactness::same_math);
  const auto normed = Run(resnet, {{"launches", 60}, {"compute", 40}}).proposals();
  const Proposal* other = find(normed, "data.batch_size=32");
  REQUIRE(other);
  CHECK(other->exactness == Exactness::new_math);  // batch-norm sees other batches
}

TEST_CASE("ranks exchange larger pieces") {
  const auto proposals = Run({"model.name=mlp", "parallel.bucket_cap_mb=0.01"}, {{"exchange", 50}, {"compute", 50}},
                             {.rank = 0, .ranks = 2, .local_rank = 0, .local_ranks = 2})
                             .proposals();
  CHECK(find(proposals, "parallel.bucket_cap_mb="));
  const Proposal* rounded = find(proposals, "gradient_dtype=bfloat16");
  REQUIRE(rounded);
  CHECK(rounded->exactness == Exactness::new_math);
}

}  // namespace trainopt
