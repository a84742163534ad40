// Measures `compare` itself, for bench_verdict.py. Each command prints one JSON object.
//
//   verdict_arms known_effect RECIPE FOLDER SHARE BUDGET_S SEED
//     compares A with B, which is A with a sleep of SHARE of A's step in every step
//   verdict_arms turn_cost RECIPE FOLDER BLOCKS SEED
//     compares an arm's turns that alternate with another arm's to its consecutive turns; also as several ranks, which
//     a launcher starts
//   verdict_arms recorded FOLDER RATIO BLOCKS TRIALS
//     repeatedly deals the turns of a job against itself to two arms, with B's made RATIO times as fast
#include "base/philox.h"
#include "comm/job.h"
#include "comm/launch/launch_environment.h"
#include "compare/arms/local_arm.h"
#include "compare/arms/make_arm.h"
#include "compare/arms/ranked_arms.h"
#include "compare/bundle.h"
#include "compare/comparison.h"
#include "compare/output/comparison_json.h"
#include "device/process.h"
#include "metrics/summary.h"
#include "recipe/recipe_io.h"
#include "statistics/paired.h"

#include <cmath>
#include <cstdio>
#include <thread>
#include <unistd.h>

using namespace trainopt;

namespace {

class SleepyRunner : public StepRunner {
 public:
  SleepyRunner(std::unique_ptr<StepRunner> inner, double seconds) : inner_(std::move(inner)), seconds_(seconds) {}
  at::Tensor micro_step(const StepBody& body, const Batch& micro) override { return inner_->micro_step(body, micro); }
  at::Tensor update_step(const StepBody& body) override {
    at::Tensor norm = inner_->update_step(body);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
    return norm;
  }

 private:
  std::unique_ptr<StepRunner> inner_;
  double seconds_;
};

double median_step_s(Turn turn) { return percentile(turn.step_ms, 0.5) * 1e-3; }

ArmSpec spec_of(const char* recipe, const std::filesystem::path& folder, int64_t ranks = 1) {
  Sources sources;
  sources.files.emplace_back(recipe);
  return {.recipe = load_recipe(sources, ranks).recipe, .folder = folder, .without = {}, .batch_seed = {}};
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

Json turn_cost(ArmFactory& factory, int64_t ranks, const char* recipe, const std::filesystem::path& folder,
               int64_t blocks, uint64_t seed) {
  const auto made_one = factory.make(spec_of(recipe, folder / "a", ranks), ArmHost::this_process),
             made_other = factory.make(spec_of(recipe, folder / "b", ranks), ArmHost::this_process);
  Arm &one = *made_one, &other = *made_other;
  const double step_s = median_step_s(one.turn(10));
  other.turn(10);
  const auto steps = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(0.25 / step_s)));
  std::vector<double> differences;
  for (int64_t block = 0; block < blocks; ++block) {
    double in_a_row = 0, in_turn = 0;
    const auto row = [&] {
      one.turn(steps);  // warms up again after the other arm
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
          {"ranks", ranks},
          {"steps_a_turn", steps},
          {"step_ms", 1e3 * step_s}};
}

/// Lets rank 0 measure while the other ranks do what it says; with one rank, just measures. Prints what was measured.
int with_ranks(const std::function<Json(ArmFactory&, int64_t ranks)>& measure) {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry; ++entry)
    if (const std::string text = *entry; text.find('=') != std::string::npos)
      environment[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  const Launch launch = read_launch(environment);
  const RankPosition& position = launch.position;
  ArmSite site{.machine = detect_machine(), .position = position};
  site.prepare = [](const Plan& plan) { apply(plan.process); };
  if (position.ranks == 1) {
    LocalArms factory(site);
    return std::puts(measure(factory, 1).dump().c_str()), 0;
  }
  Job job({.position = position,
           .address = launch.master_address,
           .port = launch.master_port.value_or(0),
           .external_store = launch.launcher_serves_store,
           .job = "verdict-arms-" + launch.job,
           .port_folder = std::filesystem::temp_directory_path(),
           .timeout_s = 60},
          {.recipe = {}, .build = {}, .host = "this machine", .cpus = allowed_cpus()});
  site.connect = [&](at::Device device) { return std::shared_ptr<Communicator>(job.make_communicator(device)); };
  LocalArms mine(site);
  const std::shared_ptr<Communicator> channel = job.make_communicator();
  RankDuties duties;
  duties.explain = explain_plainly;
  if (!position.is_first()) return serve_arms(channel, mine, duties);
  RankedArms factory(channel, mine, duties);
  std::puts(measure(factory, position.ranks).dump().c_str());
  factory.finish(0);
  return 0;
}

/// Each trial starts at a random recorded turn, keeps the turns in order (the last is followed by the first) and tosses
/// its own coins.
Json recorded(const std::filesystem::path& folder, double ratio, int64_t blocks, int64_t trials) {
  std::vector<double> turns;
  for (const Block& block : read_bundle(folder).blocks)
    for (const Turn& turn : block.turns) turns.push_back(turn.seconds / static_cast<double>(turn.samples));
  int64_t pays = 0, costs = 0, missed = 0;
  std::vector<double> taken;
  for (int64_t trial = 0; trial < trials; ++trial) {
    const auto seed = static_cast<uint64_t>(trial);
    size_t next = PhiloxStream(mix_key(seed, "recorded")).next_below(turns.size());
    SequentialVerdict verdict({.seed = seed});
    for (int64_t number = 0; number < blocks && !verdict.decided(); ++number) {
      Block block;
      block.order = block_order(seed, number);
      for (size_t i = 0; i < block.turns.size(); ++i, next = (next + 1) % turns.size()) {
        block.turns[i].samples = 1;
        block.turns[i].seconds = turns[next] / (block.is_a(i) ? 1 : ratio);
      }
      verdict.add(measurement_of({&block, 1}));
    }
    if (!verdict.decided()) verdict.finish();
    pays += verdict.verdict() == Verdict::pays;
    costs += verdict.verdict() == Verdict::costs;
    missed += verdict.rejects(ratio);
    taken.push_back(4.0 * static_cast<double>(verdict.measurements()));
  }
  const auto share = [&](int64_t count) { return static_cast<double>(count) / static_cast<double>(trials); };
  return {{"recorded_turns", turns.size()}, {"pays", share(pays)}, {"costs", share(costs)},
          {"missed", share(missed)},        {"trials", trials},    {"median_turns", percentile(taken, 0.5)}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "known_effect" && argc == 7)
      std::puts(
          known_effect(argv[2], argv[3], std::stod(argv[4]), std::stod(argv[5]), std::stoull(argv[6])).dump().c_str());
    else if (what == "turn_cost" && argc == 6)
      return with_ranks([&](ArmFactory& factory, int64_t ranks) {
        return turn_cost(factory, ranks, argv[2], argv[3], std::stoll(argv[4]), std::stoull(argv[5]));
      });
    else if (what == "recorded" && argc == 6)
      std::puts(recorded(argv[2], std::stod(argv[3]), std::stoll(argv[4]), std::stoll(argv[5])).dump().c_str());
    else
      return std::fprintf(stderr, "see the top of verdict_arms.cpp for the arguments\n"), 2;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "verdict_arms: %s\n", error.what()), 1;
  }
  return 0;
}
