// Two measurements of the measuring itself, for bench_verdict.py; each prints one JSON object.
//   verdict_arms known_effect RECIPE FOLDER SHARE BUDGET_S SEED    B is A with a sleep of SHARE of A's step in every
//   step: what compare finds verdict_arms turn_cost RECIPE FOLDER BLOCKS SEED               one arm's turns between
//   another's against its turns in a row
#include "compare/comparison.h"
#include "compare/comparison_json.h"
#include "compare/local_arm.h"
#include "compare/make_arm.h"
#include "metrics/summary.h"
#include "recipe/recipe_io.h"
#include "statistics/paired.h"

#include <cmath>
#include <cstdio>
#include <thread>

using namespace trainopt;

namespace {

class SleepyRunner : public StepRunner {
 public:
  SleepyRunner(std::unique_ptr<StepRunner> inner, double seconds) : inner_(std::move(inner)), seconds_(seconds) {}
  at::Tensor micro_step(const StepBody& body, const Batch& micro) override { return inner_->micro_step(body, micro); }
  void update_step(const StepBody& body) override {
    inner_->update_step(body);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
  }

 private:
  std::unique_ptr<StepRunner> inner_;
  double seconds_;
};

double median_step_s(Turn turn) { return percentile(turn.step_ms, 0.5) * 1e-3; }

ArmSpec spec_of(const char* recipe, const std::filesystem::path& folder) {
  Sources sources;
  sources.files.emplace_back(recipe);
  return {.recipe = load_recipe(sources).recipe, .folder = folder, .without = {}, .batch_seed = {}};
}

Json known_effect(const char* recipe, const std::filesystem::path& folder, double share, double budget_s,
                  uint64_t seed) {
  const auto until = after(budget_s);
  const ArmSpec spec = spec_of(recipe, folder / "a");
  CompareOptions options;
  options.seed = seed;
  Plan plan = arm_plan(spec, detect_machine());
  apply(plan.process);
  const Baseline baseline = make_baseline(warm_up("as it is", std::make_shared<LocalArm>(plan, folder / "a"), options),
                                          {}, options, until, {});
  const double sleep_s = share * median_step_s(baseline.a.arm->turn(20));
  plan.runner.wrap("bench", "", [sleep_s](const BuildContext&, std::unique_ptr<StepRunner> inner) {
    return std::make_unique<SleepyRunner>(std::move(inner), sleep_s);
  });
  Json json = to_json(
      compare(baseline, warm_up("sleeps", std::make_shared<LocalArm>(plan, folder / "b"), options), options, until, {}),
      false);
  json["true_ratio"] = 1 / (1 + share);
  return json;
}

Json turn_cost(const char* recipe, const std::filesystem::path& folder, int64_t blocks, uint64_t seed) {
  const ArmSpec spec = spec_of(recipe, folder / "a");
  const Plan plan = arm_plan(spec, detect_machine());
  apply(plan.process);
  LocalArm one(plan, folder / "a"), other(plan, folder / "b");
  const double step_s = median_step_s(one.turn(10));
  other.turn(10);
  const auto steps = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(0.25 / step_s)));
  std::vector<double> differences;
  for (int64_t block = 0; block < blocks; ++block) {
    double in_a_row = 0, in_turn = 0;
    const auto row = [&] {
      one.turn(steps);  // back from whatever was before
      for (int i = 0; i < 4; ++i) in_a_row += one.turn(steps).seconds;
    };
    const auto turns = [&] {
      for (int i = 0; i < 4; ++i) {
        other.turn(steps);
        in_turn += one.turn(steps).seconds;
      }
    };
    if (block_order(seed, block) == Order::abba)
      row(), turns();
    else
      turns(), row();
    differences.push_back(std::log(in_turn / in_a_row));
  }
  double mean = 0;
  for (const double d : differences) mean += d / static_cast<double>(blocks);
  const auto interval = paired_interval(differences, 0.95, seed);
  return {{"cost", std::exp(mean) - 1},
          {"interval", interval ? Json{std::exp(interval->low) - 1, std::exp(interval->high) - 1} : Json()},
          {"blocks", blocks},
          {"steps_a_turn", steps},
          {"step_ms", 1e3 * step_s}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "known_effect" && argc == 7)
      std::puts(
          known_effect(argv[2], argv[3], std::stod(argv[4]), std::stod(argv[5]), std::stoull(argv[6])).dump().c_str());
    else if (what == "turn_cost" && argc == 6)
      std::puts(turn_cost(argv[2], argv[3], std::stoll(argv[4]), std::stoull(argv[5])).dump().c_str());
    else
      return std::fprintf(stderr, "see the head of verdict_arms.cpp for its arguments\n"), 2;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "verdict_arms: %s\n", error.what()), 1;
  }
  return 0;
}
