#include "compare/measure.h"

#include "scripted_arm.h"
#include "statistics/block_order.h"
#include "support/catch.h"

#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// Simulated processes: each draws a factor that it keeps, and the order of their creation is recorded.
struct Processes {
  explicit Processes(uint64_t seed) : machine(std::make_shared<SimulatedMachine>(seed, 0.005)) {}

  MakeArm maker(char name, double step_s) {
    return [this, name, step_s](int64_t pair) {
      made.push_back(name);
      if (name == 'b' && pair == fails_in) throw UserError("out of memory; lower data.batch_size", ExitCode::memory);
      const double dealt = std::exp(0.01 * std::normal_distribution<double>()(machine->random));
      return warm_up(std::string(1, name), std::make_shared<ScriptedArm>(machine, step_s * dealt), {});
    };
  }
  Comparison compare(double ratio, CompareOptions options, SetOptions pairs = {}) {
    options.turn_s = 1e-9;
    pairs.make = {maker('a', 0.1), maker('b', 0.1 / ratio)};
    return compare_in_process_pairs(pairs, {}, options, kNever, {});
  }

  std::shared_ptr<SimulatedMachine> machine;
  std::vector<char> made;
  std::optional<int64_t> fails_in;
};

}  // namespace

TEST_CASE("both arms are created afresh for every pair, and a coin toss decides which is first") {
  Processes processes(1);
  CompareOptions options;
  options.repeats = 40;
  const Comparison c = processes.compare(1, options);
  CHECK(c.sets() == 40);
  CHECK(c.pair().blocks.size() == 120);
  REQUIRE(processes.made.size() == 80);
  int a_first = 0;
  for (size_t pair = 0; pair < 40; ++pair) {
    CHECK(processes.made[2 * pair] != processes.made[2 * pair + 1]);
    a_first += processes.made[2 * pair] == 'a';
  }
  CHECK(a_first > 8);
  CHECK(a_first < 32);
}

TEST_CASE("equal arms whose processes differ are seldom judged different, and the size of an effect is found") {
  int wrong = 0, found = 0, held = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CompareOptions options;
    options.repeats = 24;
    options.seed = seed;
    const Verdict equal = Processes(seed).compare(1, options).pair().verdict;
    wrong += equal == Verdict::pays || equal == Verdict::costs;
    const Comparison faster = Processes(seed).compare(1.05, options);
    found += faster.pair().verdict == Verdict::pays;
    held += faster.pair().interval->contains(1.05);
  }
  CHECK(wrong <= 6);
  CHECK(found == 40);
  CHECK(held >= 34);
}

TEST_CASE("too few pairs decide nothing, whatever they show") {
  CompareOptions options;
  for (const int64_t pairs : {1, 5}) {
    options.repeats = pairs;
    const Comparison c = Processes(1).compare(2, options);
    CHECK(c.pair().verdict == Verdict::inconclusive);
    CHECK_FALSE(c.pair().interval.has_value());
  }
}

TEST_CASE("a failure in a later pair keeps the measurements, and one in the first pair ends the comparison") {
  Processes later(1), at_once(1);
  CompareOptions options;
  options.repeats = 10;
  later.fails_in = 7;
  const Comparison c = later.compare(1.2, options);
  CHECK(c.sampling.ended == "failed");
  CHECK(c.sets() == 7);
  CHECK(c.sampling.failure.find("out of memory") != std::string::npos);
  CHECK(c.sampling.failure_code == ExitCode::memory);
  at_once.fails_in = 0;
  CHECK_THROWS_AS(at_once.compare(1.2, options), UserError);
}

TEST_CASE("a cell of an ablation takes its minimum of pairs, decided or not, and ends with the budget") {
  Processes processes(1);
  SetOptions pairs;
  pairs.min_sets = 2;
  pairs.may_decide = false;
  pairs.make = {processes.maker('a', 0.1), processes.maker('b', 0.05)};
  CompareOptions options;
  options.turn_s = 1e-9;
  const Comparison c = compare_in_process_pairs(pairs, {}, options, Clock::now(), {});
  CHECK(c.sampling.ended == "budget");
  CHECK(c.sets() == 2);
}

TEST_CASE("a budget too short for the first steps and one round is refused before anything is compared") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0);
  const auto slow = std::make_shared<ScriptedArm>(machine, /*step_s=*/1000);
  WarmUp first({}, {.until = after(100)}, /*arms=*/2, /*twins=*/4);
  CHECK_THROWS_WITH(first("a", [&] { return slow; }), ContainsSubstring("the budget is too short"));
  CHECK(slow->steps_taken() == 2);
}

TEST_CASE("where the first steps of all arms would take more than half of the time, they are fewer") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0);
  const auto steps = [&](double step_s, int64_t others, int64_t twins) {
    const auto arm = std::make_shared<ScriptedArm>(machine, step_s);
    WarmUp first({.warmup_steps = 10}, {.until = after(1e4)}, 1 + others, twins);
    CHECK(first("a", [&] { return arm; }).first_steps.steps == first.steps());
    const auto b = std::make_shared<ScriptedArm>(machine, step_s);
    CHECK(first("b", [&] { return b; }).first_steps.steps == first.steps());
    return first.steps();
  };
  CHECK(steps(1, 1, 4) == 10);
  CHECK(steps(450, 2, 0) == 6);
  CHECK(steps(200, 2, 0) == 8);
  CHECK(steps(120, 1, 4) == 6);
}

TEST_CASE("twins that would not end in time are not begun, and their number says how many there should be") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0);
  const auto twins = [&](double seconds, std::optional<int64_t> repeats) {
    const CompareOptions options{.repeats = repeats, .warmup_steps = 3, .noise_blocks = 0};
    const auto make = [&](int64_t) {
      return std::optional(warm_up("arm", std::make_shared<ScriptedArm>(machine, 100), options));
    };
    return make_baseline(*make(0), make, options, after(seconds), {}).twins;
  };
  CHECK(twins(200, {}).first_turns.empty());
  CHECK(twins(200, {}).wanted == 4);
  CHECK(twins(200, 2).first_turns.size() == 4);
  CHECK(twins(1e4, {}).first_turns.size() == 4);
}

TEST_CASE("a twin whose first steps are cut short is not used, and no other is begun") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0);
  WarmUp first({.warmup_steps = 7}, {.until = after(1e4)}, 2, 4);
  WarmArm a = first("a", [&] { return std::make_shared<ScriptedArm>(machine, 0.1); });
  int64_t made = 0;
  const auto make = [&](int64_t number) {
    ++made;
    return first.twin(
        "twin",
        [&] {
          auto arm = std::make_shared<ScriptedArm>(machine, 0.1);
          if (number == 2) arm->ends_early_after = 0;
          return arm;
        },
        after(1e3));
  };
  const Twins twins = make_baseline(a, make, {.noise_blocks = 0}, after(1e4), {}).twins;
  CHECK(twins.first_turns.size() == 2);
  CHECK(made == 3);
}

TEST_CASE("a round in which a turn ends early is no measurement, and the last") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0);
  std::vector<WarmArm> arms;
  for (const char* name : {"a", "b"}) arms.push_back(warm_up(name, std::make_shared<ScriptedArm>(machine, 0.1), {}));
  const auto b = std::dynamic_pointer_cast<ScriptedArm>(arms[1].arm);
  b->ends_early_after = b->taken + 2 * 3;  // in the fourth round
  const Sampling sampling = sample_rounds(arms, {}, kNever, {}, [](const Sampling&, const PairVerdicts&) {});
  CHECK(sampling.ended == "budget");
  REQUIRE(sampling.rounds.size() == 3);
  for (const Round& round : sampling.rounds)
    for (const Turn& turn : round.turns) CHECK(turn.steps == round.turns.front().steps);
}

TEST_CASE("a budget that ends in the first round is refused") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0);
  const WarmArm a = warm_up("a", std::make_shared<ScriptedArm>(machine, 0.1), {});
  WarmArm b = warm_up("b", std::make_shared<ScriptedArm>(machine, 0.1), {});
  std::dynamic_pointer_cast<ScriptedArm>(b.arm)->ends_early_after = 0;
  CHECK_THROWS_WITH(compare({.a = a, .twins = {}, .noise = {}}, b, {}, kNever, {}),
                    ContainsSubstring("the budget is too short"));
}

TEST_CASE("a twin that fails leaves the other arms their own limit") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0);
  WarmUp first({.warmup_steps = 7}, {.until = after(1e4)}, 2, 4);
  const auto make = [&] { return std::make_shared<ScriptedArm>(machine, 0.1); };
  first("a", make);
  const auto failing = [&]() -> std::shared_ptr<Arm> { throw UserError("no process"); };
  CHECK_THROWS_AS(first.twin("twin", failing, Clock::now() - std::chrono::seconds(1)), UserError);
  CHECK(first("b", make).first_steps.steps == 7);
}

TEST_CASE("the first arm of all may be a twin, and is judged by the whole time") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0);
  WarmUp first({.warmup_steps = 10}, {.until = after(1e4)}, 2, 4);
  // Twelve steps of 100 s each would not fit into the twin's 400 s, and do fit into the whole time.
  const auto twin = first.twin(
      "twin", [&] { return std::make_shared<ScriptedArm>(machine, 100); }, after(400));
  REQUIRE(twin);
  CHECK(first.steps() == 8);
}
