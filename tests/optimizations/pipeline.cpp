// A model in stages trains what one rank trains. Ranks are threads.
#include "data/batch.h"
#include "device/tensor.h"
#include "optimizations/pipeline_stages/pipeline_runner.h"
#include "optimizations/pipeline_stages/pipeline_stages.h"
#include "recipe/validate.h"
#include "support/catch.h"
#include "support/resuming.h"
#include "support/small_gpt2.h"
#include "support/trained_ranks.h"
#include "train/memory_forecast.h"

#include <map>
#include <mutex>
#include <set>

namespace pipeline_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// Tied weights and six units.
Recipe gpt2_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  use_gpt2(recipe);
  recipe.model.layers = 3;
  recipe.data.batch_size = 8;
  recipe.optimizer = SgdConfig{.lr = 0.05, .momentum = 0.9};  // Adam would amplify gradients that are rounding only
  recipe.train.max_steps = 6;
  recipe.train.max_grad_norm = 0.5;
  return recipe;
}

Recipe mlp_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::mlp, .hidden = {40, 32, 24}};
  recipe.data.size = 64;
  recipe.data.batch_size = 16;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 8}, NormalizeConfig{}};
  recipe.optimizer = SgdConfig{.lr = 0.05};
  recipe.train.max_steps = 6;
  return recipe;
}

Recipe with(Recipe recipe, const std::function<void(Recipe&)>& change) {
  change(recipe);
  return recipe;
}

/// On stages × replicas ranks.
Recipe in_stages(Recipe recipe, const PipelineConfig& pipeline, int64_t replicas = 1) {
  recipe.parallel.pipeline = pipeline;
  recipe.data.batch_size /= replicas;
  return recipe;
}

void check_close(const Trained& got, const Trained& wanted, double tolerance = 1e-5) {
  REQUIRE(got.losses.size() == wanted.losses.size());
  for (size_t i = 0; i < got.losses.size(); ++i) CHECK(got.losses[i] == Approx(wanted.losses[i]).epsilon(tolerance));
  REQUIRE(got.weights.size() == wanted.weights.size());
  for (size_t i = 0; i < got.weights.size(); ++i) {
    INFO(got.weights[i].first);
    CHECK(got.weights[i].first == wanted.weights[i].first);
    CHECK(at::allclose(got.weights[i].second.to(at::kFloat), wanted.weights[i].second.to(at::kFloat), tolerance,
                       tolerance));
  }
}

/// The checkpoint that the ranks together store after `steps` steps.
ArchiveReader saved(int64_t ranks, Recipe recipe, int64_t steps) {
  recipe.train.max_steps = steps;
  NamedTensors tensors;
  Json values;
  std::mutex mutex;
  const auto train = [&](Communicator& communicator) {
    const Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 1}, communicator.position());
    Rows rows;
    Trainer trainer(plan, {}, rows, never_stopped(), {},
                    std::shared_ptr<Communicator>(&communicator, [](Communicator*) {}));
    trainer.run();
    ArchiveWriter archive(plan.stages.replica);
    trainer.save(archive);
    const std::lock_guard lock(mutex);
    for (const auto& [name, tensor] : archive.tensors()) tensors.emplace_back(name, tensor.detach().clone());
    if (communicator.rank() != 0) return;
    values = archive.values();
    values.update(archive.lists());
  };
  if (ranks == 1)
    train(*make_single_communicator());
  else
    as_ranks(ranks, [&](Job&, Communicator& communicator) { train(communicator); });
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) CHECK(names.insert(name).second);  // each is stored once
  return {"test", tensors, values};
}

Trained resumed(int64_t ranks, const Recipe& recipe, const ArchiveReader& from) {
  return train_as(ranks, recipe, {.resume = &from, .forks = true});
}

constexpr auto kGpipe = PipelineSchedule::gpipe, k1f1b = PipelineSchedule::one_forward_one_backward;

/// What a communicator has sent.
struct Sends {
  int64_t held = 0;       ///< exchanges that exist
  int64_t unawaited = 0;  ///< of those that ended, the ones that were not waited for
};

/// Its messages arrive at once, and those received are zeros.
class CountingCommunicator : public Communicator {
 public:
  CountingCommunicator(const RankPosition& position, Sends& sends) : position_(position), sends_(sends) {}
  const RankPosition& position() const override { return position_; }
  std::unique_ptr<Exchange> send(at::Tensor, int64_t) override { return std::make_unique<Message>(sends_); }
  std::unique_ptr<Exchange> receive(at::Tensor data, int64_t) override {
    data.zero_();
    return others_->all_reduce(data);
  }
  std::unique_ptr<Communicator> among(const std::vector<int64_t>& ranks) override {
    return std::make_unique<CountingCommunicator>(position_among(ranks, position_), sends_);
  }
  // A pipeline's links call none of these.
  std::unique_ptr<Exchange> all_reduce(at::Tensor data) override { return others_->all_reduce(data); }
  std::unique_ptr<Exchange> reduce_scatter(at::Tensor mine, at::Tensor all) override {
    return others_->reduce_scatter(mine, all);
  }
  std::unique_ptr<Exchange> all_gather(at::Tensor all, at::Tensor mine) override {
    return others_->all_gather(all, mine);
  }
  std::unique_ptr<Exchange> broadcast(at::Tensor data, int64_t root) override { return others_->broadcast(data, root); }
  std::vector<double> gather(std::span<const double> mine) override { return others_->gather(mine); }
  Traffic take_traffic() override { return {}; }

 private:
  class Message : public Exchange {
   public:
    explicit Message(Sends& sends) : sends_(sends) { ++sends_.held; }
    ~Message() override {
      --sends_.held;
      sends_.unawaited += !waited_;
    }
    void wait() override { waited_ = true; }

   private:
    Sends& sends_;
    bool waited_ = false;
  };

  RankPosition position_;
  Sends& sends_;
  std::unique_ptr<Communicator> others_ = make_single_communicator();
};

std::string problem_with(const Recipe& recipe, int64_t ranks) {
  for (const RecipeProblem& problem : validate(recipe, ranks)) return problem.key + ": " + problem.message;
  return "";
}

}  // namespace

TEST_CASE("stages are as even as any division of the units") {
  const std::vector<double> costs{0, 7, 3, 3, 9, 1, 4, 4, 0, 12};
  for (const int64_t stages : {1, 2, 3, 4, 10}) {
    const auto found = pipeline_stages::balanced_stages(costs, stages);
    const auto most = [&](const std::vector<size_t>& ends) {
      double worst = 0;
      for (size_t i = 0, first = 0; i < ends.size(); first = ends[i++])
        worst = std::max(worst, std::accumulate(costs.begin() + static_cast<int64_t>(first),
                                                costs.begin() + static_cast<int64_t>(ends[i]), 0.0));
      return worst;
    };
    std::vector<size_t> ends;
    for (const UnitRange& range : found) {
      CHECK(range.first == (ends.empty() ? 0 : ends.back()));
      CHECK(range.end > range.first);
      ends.push_back(range.end);
    }
    CHECK(ends.back() == costs.size());
    double best = std::numeric_limits<double>::infinity();
    for (uint32_t cuts = 0; cuts < 1U << (costs.size() - 1); ++cuts) {  // every division into so many parts
      if (std::popcount(cuts) != stages - 1) continue;
      std::vector<size_t> other;
      for (size_t unit = 0; unit + 1 < costs.size(); ++unit)
        if (cuts >> unit & 1) other.push_back(unit + 1);
      other.push_back(costs.size());
      best = std::min(best, most(other));
    }
    CHECK(most(ends) == best);
  }
}

TEST_CASE("the schedules idle and keep exactly what their papers say") {
  struct Pass {
    bool backward;
    int64_t micro;
  };
  for (const int64_t stages : {1, 2, 4})
    for (const int64_t count : {1, 2, 4, 9})
      for (const auto schedule : {kGpipe, k1f1b}) {
        INFO(stages << " stages, " << count << " micro-batches, " << word_of(schedule));
        std::vector<std::vector<Pass>> passes(static_cast<size_t>(stages));
        for (int64_t stage = 0; stage < stages; ++stage) {
          auto& own = passes[static_cast<size_t>(stage)];
          int64_t started = 0, ended = 0;
          const StepBody body{.forward =
                                  [&](const Batch&) {
                                    own.push_back({false, started});
                                    return at::scalar_tensor(started++);
                                  },
                              .backward =
                                  [&](const at::Tensor& loss, bool is_last) {
                                    CHECK(loss.item<int64_t>() == ended);
                                    CHECK(is_last == (++ended == count));
                                    own.push_back({true, ended - 1});
                                  }};
          const auto runner =
              pipeline_stages::make_pipeline_runner({.warm_up = pipeline_stages::warm_up(schedule, stages, stage)});
          for (int64_t i = 0; i < count; ++i) {
            Batch micro;
            micro.is_first = i == 0;
            micro.is_last = i + 1 == count;
            runner->micro_step(body, micro);
          }
          StepTrace trace;
          runner->report(trace);
          CHECK(trace.count(pipeline_stages::kInFlightLabel) ==
                static_cast<double>(schedule == kGpipe ? count : std::min(count, stages - stage)));
        }
        // Each pass takes one unit of time and starts when this stage and the pass that it needs are done.
        std::map<std::tuple<bool, int64_t, int64_t>, int64_t> end;  // backward, stage, micro-batch
        std::vector<size_t> next(static_cast<size_t>(stages), 0);
        std::vector<int64_t> free(static_cast<size_t>(stages), 0);
        for (bool moved = true; moved;) {
          moved = false;
          for (int64_t stage = 0; stage < stages; ++stage) {
            const auto at = static_cast<size_t>(stage);
            if (next[at] == passes[at].size()) continue;
            const auto [backward, micro] = passes[at][next[at]];
            const int64_t before = stage + (backward ? 1 : -1);
            int64_t ready = 0;
            if (0 <= before && before < stages) {
              const auto found = end.find({backward, before, micro});
              if (found == end.end()) continue;
              ready = found->second;
            }
            free[at] = end[{backward, stage, micro}] = std::max(free[at], ready) + 1;
            ++next[at];
            moved = true;
          }
        }
        const auto makespan = static_cast<double>(*std::max_element(free.begin(), free.end()));
        CHECK(1 - static_cast<double>(2 * count) / makespan == Approx(pipeline_stages::idle_share(stages, count)));
      }
}

TEST_CASE("2 and 4 stages and 2 stages of 2 replicas train what one rank trains") {
  const bool text = GENERATE(false, true);
  const Recipe job = text ? gpt2_recipe() : mlp_recipe();
  static const Trained alone[] = {train_as(1, mlp_recipe()), train_as(1, gpt2_recipe())};
  for (const auto schedule : {kGpipe, k1f1b}) {
    check_close(train_as(2, in_stages(job, {2, 4, schedule})), alone[text]);
    check_close(train_as(4, in_stages(job, {4, 2, schedule})), alone[text]);
    check_close(train_as(4, in_stages(job, {2, 2, schedule}, 2)), alone[text]);
  }
  const Trained in_turn = train_as(2, in_stages(job, {2, 1, k1f1b}));  // plain model parallelism
  check_close(in_turn, alone[text]);
  for (const SwitchReceipt& one : train_as(2, in_stages(job, {2, 4, k1f1b})).receipts)
    CHECK(one.receipt.effective);  // data.batch_size, too, although its micro-batches are divided
}

TEST_CASE("a pipeline works with the other options of a step") {
  const std::vector<std::tuple<std::string, std::function<void(Recipe&)>, double>> variants{
      {"accumulation", [](Recipe& r) { r.train.gradient_accumulation_steps = 2; }, 1e-5},
      {"amp", [](Recipe& r) { r.optimizations.amp.on = true; }, 2e-2},
      {"amp float16",
       [](Recipe& r) {
         r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 64}};
       },
       2e-2},
      {"fused", [](Recipe& r) { r.optimizations.fused_kernels = r.optimizations.fused_optimizer = true; }, 1e-5},
      {"skipping non-finite steps", [](Recipe& r) { r.train.on_nonfinite = OnNonfinite::skip; }, 1e-5},
      {"activations computed again", [](Recipe& r) { r.optimizations.activation_checkpointing.on = true; }, 1e-5}};
  for (const auto& [name, change, tolerance] : variants) DYNAMIC_SECTION(name) {
      const Recipe job = with(gpt2_recipe(), change);
      check_close(train_as(2, in_stages(job, {2, 4, k1f1b})), train_as(1, job), tolerance);
    }
}

TEST_CASE("a micro-batch outlives the loader's buffer, which the next batches are read into") {
  const Recipe job = with(gpt2_recipe(), [](Recipe& r) {
    r.train.gradient_accumulation_steps = 4;  // the loader has two buffers
    r.train.max_steps = 2;
  });
  for (const auto schedule : {kGpipe, k1f1b})
    check_close(train_as(2, in_stages(job, {2, 4, schedule})), train_as(1, job));
}

TEST_CASE("the forecast of a stage counts the parameters of that stage") {
  for (const int64_t rank : {0, 1}) {
    const Plan plan = make_plan(in_stages(gpt2_recipe(), {2, 4, k1f1b}), Machine{.cpu = "test", .cores = 1},
                                {.rank = rank, .ranks = 2, .local_rank = rank, .local_ranks = 2});
    int64_t bytes = 0;
    for (const auto& [name, tensor] : plan.build_model()->state()) bytes += static_cast<int64_t>(tensor.nbytes());
    CHECK(bytes < plan.model.parameter_bytes());
    const MemoryBreakdown forecast = forecast_memory(plan).breakdown;
    CHECK(mib(forecast[MemoryUse::parameters]) == Approx(mib(bytes)).epsilon(0.01));
  }
}

TEST_CASE("batch-norm sees micro-batches, as with accumulation") {
  const Recipe job = with(mlp_recipe(), [](Recipe& r) {
    r.model = {};
    r.model.stem = StemKind::cifar;
    r.optimizer = SgdConfig{.lr = 1e-4};
    r.train.max_steps = 3;
  });
  const Recipe accumulated = with(job, [](Recipe& r) {
    r.data.batch_size = 8;
    r.train.gradient_accumulation_steps = 2;
  });
  check_close(train_as(2, in_stages(job, {2, 2, k1f1b})), train_as(1, accumulated), 1e-4);
}

TEST_CASE("stages evaluate together") {
  const Recipe job = mlp_recipe();
  const auto evaluated = [&](int64_t ranks, const Recipe& recipe) {
    std::vector<EvaluationResult> results;
    as_ranks(ranks, [&](Job&, Communicator& communicator) {
      Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 1}, communicator.position());
      plan.evaluation = EvaluationPlan{.every_n_steps = 3, .at_end = false, .data = plan.data};
      plan.evaluation->data.shuffle = false;
      Rows rows;
      Trainer trainer(plan, {}, rows, never_stopped(), {},
                      std::shared_ptr<Communicator>(&communicator, [](Communicator*) {}));
      trainer.run();
      if (communicator.rank() == 0) results = rows.evaluations;
    });
    return results;
  };
  const auto one = evaluated(1, job), two = evaluated(2, in_stages(job, {2, 4, k1f1b}));
  REQUIRE(two.size() == one.size());
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(two[i].loss == Approx(one[i].loss).epsilon(1e-5));
    CHECK(two[i].samples == one[i].samples);
    CHECK(two[i].top1_pct == one[i].top1_pct);
  }
}

TEST_CASE("an evaluation keeps one activation that it sent, and a training step those that wait for their gradients") {
  const Plan plan = make_plan(in_stages(mlp_recipe(), {2, 4, k1f1b}), Machine{.cpu = "test", .cores = 1},
                              {.ranks = 2, .local_ranks = 2});
  Sends sends;
  CountingCommunicator communicator({.ranks = 2, .local_ranks = 2}, sends);
  RankGroups groups(communicator, plan.stages);
  const auto model = plan.build_model();
  const auto links = std::make_shared<pipeline_stages::StageLinks>(groups, plan.stages.stage);
  link_stages(*model, plan.stages, links);
  const InputShape& image = plan.model.input;
  const at::Tensor images = at::ones({4, image.channels, image.height, image.width});
  const auto evaluate = [&](int64_t batches) {
    const at::NoGradGuard no_grad;
    for (int64_t i = 0; i < batches; ++i) model->forward(images, {});
  };
  for (const int64_t batches : {1, 2, 30}) {
    evaluate(batches);
    CHECK(sends.held == 1);
  }
  std::deque<at::Tensor> losses;
  for (int64_t i = 1; i <= 3; ++i) {
    losses.push_back(model->forward(images, {.training = true}));
    CHECK(sends.held == 1 + i);
  }
  evaluate(5);
  CHECK(sends.held == 1 + 3);
  for (int64_t left = 2; left >= 0; --left) {  // each gradient frees its own
    losses.front().backward();
    losses.pop_front();
    CHECK(sends.held == 1 + left);
  }
  links->finish();
  CHECK(sends.held == 0);
  CHECK(sends.unawaited == 0);
}

TEST_CASE("a pipeline resumes bit-exactly after any step") {
  const Recipe with_dropout = with(gpt2_recipe(), [](Recipe& r) { r.model.dropout = 0.2; });
  const Recipe with_loss_scale = with(mlp_recipe(), [](Recipe& r) {  // every stage has it, only the first one stores it
    r.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 256, .growth_interval = 1}};
  });
  for (const Recipe& plain : {with_dropout, with_loss_scale}) {
    const Recipe job = in_stages(plain, {2, 4, k1f1b});
    const Trained whole = train_as(2, job);
    for (int64_t steps = 1; steps < 6; ++steps) {
      INFO(word_of(job.model.name) << ", stopped after step " << steps);
      const Trained rest = resumed(2, job, saved(2, job, steps));
      CHECK(rest.losses == std::vector<double>(whole.losses.begin() + steps, whole.losses.end()));
      CHECK(first_difference(rest.weights, whole.weights).empty());
    }
  }
}

TEST_CASE("checkpoints load into any number of stages and replicas") {
  const Recipe job = gpt2_recipe();
  const Trained whole = train_as(1, job);
  const auto check_rest = [&](const Trained& rest) {
    const std::vector<double> wanted(whole.losses.begin() + 3, whole.losses.end());
    REQUIRE(rest.losses.size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) CHECK(rest.losses[i] == Approx(wanted[i]).epsilon(1e-5));
  };
  const auto in_two = saved(2, in_stages(job, {2, 4, k1f1b}), 3);
  check_rest(resumed(1, job, in_two));
  check_rest(resumed(4, in_stages(job, {4, 2, k1f1b}), in_two));
  check_rest(resumed(2, in_stages(job, {2, 4, k1f1b}), saved(1, job, 3)));
  check_rest(resumed(4, in_stages(job, {2, 2, k1f1b}, 2), saved(4, in_stages(job, {4, 2, kGpipe}), 3)));
}

TEST_CASE("what a pipeline cannot do is said in a sentence") {
  const Recipe job = gpt2_recipe();
  CHECK(problem_with(in_stages(job, {2, 3, k1f1b}), 2) ==
        "parallel.pipeline.micro_batches: must divide data.batch_size: 3, 8");
  CHECK(problem_with(with(in_stages(job, {2, 2, k1f1b}),
                          [](Recipe& r) { r.parallel.sharding_strategy = ShardingStrategy::zero2; }),
                     2) ==
        "parallel.sharding_strategy: a pipeline already divides the model; its replicas need sharding_strategy none");
  CHECK(problem_with(in_stages(job, {1, 2, k1f1b}), 2) == "parallel.pipeline: needs parallel.pipeline.stages above 1");
  const auto plan_on = [&](int64_t ranks, int64_t stages) {
    return make_plan(in_stages(job, {stages, 2, k1f1b}), Machine{.cpu = "test", .cores = 2},
                     {.ranks = ranks, .local_ranks = ranks});
  };
  CHECK_THROWS_WITH(plan_on(7, 7), "parallel.pipeline.stages: the gpt2 has fewer units than stages: 6, 7");
  CHECK_THROWS_WITH(plan_on(3, 2), "parallel.pipeline.stages must divide the number of ranks: 2, 3");
  CHECK(plan_on(1, 2).switches.back().outcome.text == "there is only one rank; start 2 or a multiple of it");
}

}  // namespace pipeline_tests
