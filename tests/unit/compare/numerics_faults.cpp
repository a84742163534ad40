// How often compare_numbers() distinguishes planted faults from correct changes.
#include "compare/arms/local_arm.h"
#include "compare/numbers/numerics.h"
#include "support/catch.h"
#include "unit/compare/first_turns.h"
#include "unit/compare/planted_faults.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <map>

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kStepsWithFault = 10;

/// The tensors are small: more threads would only wait, and for long on a busy machine.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }

 private:
  int before_;
};

/// A job to which changes are applied: its plan for a seed, and the plan of its twin.
struct NumericsJob {
  std::string name;
  Yardstick yardstick;
  std::function<Plan(uint64_t seed)> plan;
  std::function<Plan(uint64_t seed, int64_t number)> twin;
};

/// For each change, how many of `seeds` trainings disagree with the job.
using Rates = std::map<std::string, int>;
Rates disagreeing(const NumericsJob& job, const std::vector<Change>& changes, uint64_t seeds) {
  const OneThread one_thread;
  Rates rates;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    FirstTurns turns(kStepsWithFault);
    const FirstSteps a = turns.train(job.plan(seed));
    const auto twins = turns.train_twins([&](int64_t number) { return job.twin(seed, number); });
    for (const Change& change : changes) {
      Plan plan = job.plan(seed);
      change.make(plan);
      const Numerics numerics = compare_numbers(a, turns.train(plan), twins, job.yardstick);
      UNSCOPED_INFO(job.name << ", seed " << seed << ", " << change.name << ": "
                             << fmt::format("{}", fmt::join(numerics.disagreements(), "; ")));
      CHECK(numerics.not_comparable.empty());
      rates[change.name] += !numerics.agree();
    }
  }
  return rates;
}

OptimizerConfig sgd(double decay) { return SgdConfig{.lr = 0.01, .momentum = 0.9, .weight_decay = decay}; }
OptimizerConfig adamw() {
  AdamWConfig config;
  config.lr = 0.002;
  config.weight_decay = 0.1;
  return config;
}

/// A network of linear layers.
Plan linear_plan(const OptimizerConfig& optimizer, uint64_t seed, double dropout) {
  const Plan small = small_plan(1, seed);
  Plan plan(small.machine, small.device, optimizer);
  plan.seed = seed;
  plan.data = small.data;
  plan.model = small.model;
  plan.model.config.hidden = {32};
  plan.model.config.dropout = dropout;
  return plan;
}

NumericsJob rounding_job(std::string name, const std::function<Plan(uint64_t)>& plan) {
  return {std::move(name), Yardstick::perturbed, plan,
          [=](uint64_t seed, int64_t number) { return perturbed(plan(seed), number); }};
}
std::vector<NumericsJob> rounding_jobs() {
  return {rounding_job("SGD", [](uint64_t seed) { return small_resnet_plan(sgd(0.1), seed); }),
          rounding_job("AdamW", [](uint64_t seed) { return small_resnet_plan(adamw(), seed); })};
}
/// Has so few samples and units that every ReLU that rounding switches has a visible effect.
std::vector<NumericsJob> linear_jobs() {
  return {rounding_job("SGD, linear layers", [](uint64_t seed) { return linear_plan(sgd(0), seed, 0); }),
          rounding_job("AdamW, linear layers", [](uint64_t seed) { return linear_plan(adamw(), seed, 0); })};
}
std::vector<Change> linear_right_changes() {
  std::vector<Change> changes = right_changes();
  std::erase_if(changes, [](const Change& change) { return change.name != "amp" && change.name != "fused_optimizer"; });
  return changes;
}

/// The small residual network with random crops.
NumericsJob crop_job(std::string name, const OptimizerConfig& optimizer) {
  const auto plan_of = [=](uint64_t seed, uint64_t data_seed, uint64_t stream) {
    Plan plan = small_resnet_plan(optimizer, seed);
    plan.data.seed = data_seed;
    crops(stream).make(plan);
    return plan;
  };
  return {std::move(name), Yardstick::reseeded, [=](uint64_t seed) { return plan_of(seed, seed, seed); },
          [=](uint64_t seed, int64_t number) {
            const auto other = static_cast<uint64_t>(number);
            return plan_of(seed, seed + 1 + other, seed + 500 + other);
          }};
}
NumericsJob dropout_job(std::string name, const OptimizerConfig& optimizer) {
  const auto plan = [=](uint64_t seed) { return linear_plan(optimizer, seed, 0.5); };
  return {std::move(name), Yardstick::reseeded, plan,
          [=](uint64_t seed, int64_t number) { return reseeded(plan(seed), number); }};
}

Change another_crop_stream(uint64_t apart) {
  return {"another crop stream", [apart](Plan& plan) {
            plan.data.wrap_batches = nullptr;
            crops(plan.seed + apart).make(plan);
          }};
}
/// Combines each of `changes` with `streams`.
std::vector<Change> with_streams(const Change& streams, std::vector<Change> changes) {
  for (Change& change : changes)
    change.make = [streams, make = change.make](Plan& plan) {
      streams.make(plan);
      make(plan);
    };
  return changes;
}
/// Faults large enough to be detected from whole vectors alone.
std::vector<Change> coarse_faults() {
  return {scaled_gradients(2), scaled_gradients(0.5), scaled_gradients(-1), scaled_rate(2)};
}
std::vector<std::pair<NumericsJob, Change>> stream_jobs() {
  const Change crop = another_crop_stream(1000), dropout = other_dropout();
  return {{crop_job("SGD, crops", sgd(0.001)), crop},
          {crop_job("AdamW, crops", adamw()), crop},
          {dropout_job("SGD, dropout", sgd(0.001)), dropout},
          {dropout_job("AdamW, dropout", adamw()), dropout}};
}
std::vector<Change> stream_only(const Change& streams) {
  return {streams, {streams.name + ", with amp", [streams](Plan& plan) {
                      streams.make(plan);
                      amp::apply(plan, {});
                    }}};
}

int sum(const Rates& rates) {
  int all = 0;
  for (const auto& [name, count] : rates) all += count;
  return all;
}

/// At most one in twenty, plus one, because kernels of other CPUs round differently.
bool is_seldom(int64_t count, uint64_t trials) { return count <= 1 + static_cast<int64_t>(trials) / 20; }

/// At least 85 % of all faults and, with enough trials, of each fault, over both optimizers.
void check_caught(const std::vector<Rates>& of_jobs, size_t faults, uint64_t seeds) {
  Rates all;
  for (const Rates& rates : of_jobs)
    for (const auto& [name, count] : rates) all[name] += count;
  const double trials = static_cast<double>(of_jobs.size() * seeds);
  CHECK(sum(all) >= 0.85 * trials * static_cast<double>(faults));
  for (const auto& [name, count] : all) {
    INFO(name);
    if (trials >= 20) CHECK(count >= 0.85 * trials);
  }
}

void print(const std::string& title, const std::vector<std::string>& columns, const std::vector<Change>& changes,
           const std::vector<Rates>& rates) {
  std::printf("\n| %s |", title.c_str());
  for (const auto& column : columns) std::printf(" %s |", column.c_str());
  std::printf("\n|---|");
  for (size_t i = 0; i < columns.size(); ++i) std::printf("--:|");
  for (const Change& change : changes) {
    std::printf("\n| %s |", change.name.c_str());
    for (const Rates& of : rates) std::printf(" %d |", of.at(change.name));
  }
  std::printf("\n");
}

}  // namespace

TEST_CASE("planted faults are caught, and switches that only change rounding are not") {
  constexpr uint64_t kSeeds = 2;
  std::vector<Rates> caught;
  for (const NumericsJob& job : rounding_jobs()) {
    CHECK(is_seldom(sum(disagreeing(job, right_changes(), kSeeds)), kSeeds * right_changes().size()));
    caught.push_back(disagreeing(job, faults(), kSeeds));
  }
  check_caught(caught, faults().size(), kSeeds);
  for (const NumericsJob& job : linear_jobs())
    CHECK(is_seldom(sum(disagreeing(job, linear_right_changes(), 8)), 8 * linear_right_changes().size()));
}

TEST_CASE("with the reseeded twin, another crop or dropout stream agrees and a doubled gradient does not") {
  constexpr uint64_t kSeeds = 2;
  for (const auto& [job, streams] : stream_jobs()) {
    CHECK(is_seldom(sum(disagreeing(job, stream_only(streams), kSeeds)), kSeeds * stream_only(streams).size()));
    const auto coarse = with_streams(streams, coarse_faults());
    CHECK(sum(disagreeing(job, coarse, kSeeds)) >= 0.85 * static_cast<double>(kSeeds * coarse.size()));
  }
}

TEST_CASE("detection rates of planted faults, and false alarms", "[.rates]") {
  constexpr uint64_t kSeeds = 20;
  std::vector<Rates> right, caught, small;
  std::vector<std::string> columns;
  for (const NumericsJob& job : rounding_jobs()) {
    columns.push_back(job.name);
    right.push_back(disagreeing(job, right_changes(), kSeeds));
    CHECK(is_seldom(sum(right.back()), kSeeds * right_changes().size()));
    caught.push_back(disagreeing(job, faults(), kSeeds));
    small.push_back(disagreeing(job, small_faults(), kSeeds));
  }
  print("fault, caught of 20", columns, faults(), caught);
  print("smaller fault, caught of 20", columns, small_faults(), small);
  print("correct change, false alarms of 20", columns, right_changes(), right);
  check_caught(caught, faults().size(), kSeeds);
  for (const NumericsJob& job : linear_jobs()) {
    const Rates linear = disagreeing(job, linear_right_changes(), kSeeds);
    CHECK(sum(linear) == 0);
    print("correct change, false alarms of 20", {job.name}, linear_right_changes(), {linear});
  }
}

TEST_CASE("false alarms of another stream, and detection rates of coarse faults with it", "[.rates]") {
  constexpr uint64_t kSeeds = 20;
  for (const auto& [job, streams] : stream_jobs()) {
    const Rates right = disagreeing(job, stream_only(streams), kSeeds);
    const auto coarse = with_streams(streams, coarse_faults());
    const Rates caught = disagreeing(job, coarse, kSeeds);
    print("correct change, false alarms of 20", {job.name}, stream_only(streams), {right});
    print("fault, caught of 20", {job.name}, coarse, {caught});
    for (const auto& [name, count] : right) CHECK(count <= 1);
    CHECK(sum(caught) >= 0.85 * static_cast<double>(kSeeds * coarse.size()));
  }
}
