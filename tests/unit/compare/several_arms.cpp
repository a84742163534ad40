#include "compare/comparison.h"

#include "base/philox.h"
#include "compare/each_values.h"
#include "compare/output/comparison_json.h"
#include "compare/output/comparison_text.h"
#include "compare/sampling/process_sets.h"
#include "compare/sampling/turn_taker.h"
#include "scripted_arm.h"
#include "support/catch.h"

#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

const std::vector<std::string> kNames{"one", "two", "three", "four"};

/// Arms whose throughput is `speeds` times the same.
std::vector<WarmArm> simulated_arms(const std::shared_ptr<SimulatedMachine>& machine,
                                    const std::vector<double>& speeds) {
  std::vector<WarmArm> arms;
  for (size_t i = 0; i < speeds.size(); ++i)
    arms.push_back(warm_up(kNames[i], std::make_shared<ScriptedArm>(machine, 0.1 / speeds[i]), {}));
  return arms;
}

Comparison judged(Sampling sampling, const CompareOptions& options) {
  Comparison r;
  r.job = "job.yaml";
  r.key = "key";
  r.level = options.level;
  r.min_effect = options.min_effect;
  r.seed = options.seed;
  r.numerics.resize(sampling.names.size());
  r.sampling = std::move(sampling);
  judge(r);
  return r;
}

Comparison compared(uint64_t seed, const std::vector<double>& speeds, CompareOptions options = {},
                    double noise = 0.01) {
  options.seed = seed;
  options.turn_s = 1e-9;
  const auto machine = std::make_shared<SimulatedMachine>(seed, noise);
  const auto arms = simulated_arms(machine, speeds);
  return judged(sample_rounds(arms, options, kNever, {}, [](const Sampling&, const PairVerdicts&) {}), options);
}

/// A round of equal arms whose turns vary by 3 %.
Round noisy_round(uint64_t seed, int64_t number, size_t arms, PhiloxStream& random) {
  Round round;
  round.order = turn_order(seed, number, arms);
  for (size_t i = 0; i < 2 * arms; ++i) {
    Turn turn;
    turn.samples = 1;
    turn.seconds = std::exp(0.03 * random.next_normal());
    round.turns.push_back(turn);
  }
  return round;
}

}  // namespace

TEST_CASE("the fastest of language models is the one with the most tokens per second") {
  CompareOptions options;
  options.seed = 5;
  options.turn_s = 1e-9;
  const auto machine = std::make_shared<SimulatedMachine>(5, 0.001);
  Sampling sampling = sample_rounds(simulated_arms(machine, {1, 0.8}), options, kNever, {},
                                    [](const Sampling&, const PairVerdicts&) {});
  for (Round& round : sampling.rounds)  // a sample of the second has twice as many tokens
    for (size_t i = 0; i < round.turns.size(); ++i)
      round.turns[i].tokens = round.turns[i].samples * (round.arm_of(i) == 0 ? 8 : 16);
  const Comparison r = judged(std::move(sampling), options);
  CHECK(r.arms[0].samples_per_s > r.arms[1].samples_per_s);
  CHECK(r.fastest.arms == std::vector<size_t>{1});
  CHECK(r.pair(0, 1).ratio == Approx(1.6).epsilon(0.01));
}

TEST_CASE("a round is a random order and its reverse, over the same samples for every arm") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0.001);
  std::vector<WarmArm> arms;
  for (const auto& [step_s, samples] : {std::pair(0.1, 32), {0.2, 96}, {0.15, 48}})
    arms.push_back(warm_up("arm", std::make_shared<ScriptedArm>(machine, step_s, samples), {}));
  arms[0].arm->turn(9);
  catch_up(arms);
  for (const WarmArm& arm : arms) CHECK(arm.arm->steps_taken() * arm.step_samples == 30 * 32);
  TurnTaker turns(arms, turn_steps(arms, 0.25), 3);
  for (int64_t number = 0; number < 20; ++number) {
    const Round round = turns.next();
    CHECK(round.order == turn_order(3, number, 3));
    REQUIRE(round.turns.size() == 6);
    for (size_t i = 0; i < 6; ++i) {
      CHECK(round.arm_of(i) == round.arm_of(5 - i));
      CHECK(round.turns[i].samples == round.turns[0].samples);
      CHECK(round.turns[i].seconds > 0.24);
    }
  }
}

TEST_CASE("two arms of a round form a block in the order of their turns") {
  Round round;
  round.order = {2, 0, 3, 1};
  round.set = 5;
  for (int64_t i = 0; i < 8; ++i) {
    Turn turn;
    turn.samples = 1;
    turn.seconds = static_cast<double>(i + 1);
    round.turns.push_back(turn);
  }
  const Block block = block_of(round, 1, 2);
  CHECK(block.order == Order::baab);
  CHECK(block.pair == 5);
  CHECK(block.seconds(true) == 4 + 5);
  CHECK(block.seconds(false) == 1 + 8);
  CHECK(block_of(round, 0, 1).order == Order::abba);
  CHECK(block_of(round, 0, 1).seconds(true) == 2 + 7);
  const Round again = round_from(Json::parse(to_json(round).dump()), 4);
  CHECK(again.order == round.order);
  CHECK(again.turns[6].seconds == 7);
  CHECK_THROWS_AS(round_from(to_json(round), 3), UserError);
}

TEST_CASE("equal arms: some pair is called different in at most 5 % of rotations, and in more without the correction") {
  constexpr int kTrials = 240, kRounds = 90;
  const auto any_wrong = [](PairVerdicts& verdicts) {
    if (!verdicts.decided()) verdicts.finish();
    for (size_t i = 0; i < verdicts.pairs().size(); ++i)
      if (const Verdict v = verdicts.of(i).verdict(); v == Verdict::pays || v == Verdict::costs) return true;
    return false;
  };
  int wrong = 0, wrong_uncorrected = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    CompareOptions options;
    options.seed = seed;
    SequentialOptions uncorrected = verdict_options(options, 9, 4);
    uncorrected.level = options.level;
    PairVerdicts all(4, verdict_options(options, 9, 4)), each(4, uncorrected);
    PhiloxStream random(mix_key(seed, "noise"));
    for (int64_t number = 0; number < kRounds; ++number) {
      const Round round = noisy_round(seed, number, 4, random);
      if (!all.decided()) all.add({&round, 1});
      if (!each.decided()) each.add({&round, 1});
    }
    wrong += any_wrong(all);
    wrong_uncorrected += any_wrong(each);
  }
  INFO(wrong << " and " << wrong_uncorrected << " of " << kTrials);
  CHECK(wrong <= 0.05 * kTrials);
  CHECK(wrong_uncorrected > 0.05 * kTrials);
}

TEST_CASE("the pair with an effect is found, and the other pairs have none") {
  int held = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Comparison r = compared(seed, {1, 1, 1.05, 1});
    REQUIRE(r.sampling.ended == "decided");
    for (const auto& [a, b] : pairs_of(4)) {
      const Verdict expected = b == 2 ? Verdict::pays : a == 2 ? Verdict::costs : Verdict::no_effect;
      CHECK(r.pair(a, b).verdict == expected);
      held += r.pair(a, b).interval->contains(b == 2 ? 1.05 : a == 2 ? 1 / 1.05 : 1);
    }
    CHECK(r.fastest.arms == std::vector<size_t>{2});
    const std::string text = comparison_text(r, false);
    CHECK(text.find(fmt::format("three is the fastest: at least {:.1f} % faster than each other arm",
                                100 * (*r.fastest.ahead - 1))) != std::string::npos);
    CHECK(text.find("pair          four against three: -") != std::string::npos);
  }
  CHECK(held >= 28);
}

TEST_CASE("the headline names all arms that are not shown to be slower") {
  CompareOptions options;
  const Comparison two = compared(1, {1.3, 1, 1.3}, options);
  CHECK(two.fastest.arms.size() == 2);
  CHECK(two.fastest.alike);
  CHECK(headline(two).find("are the fastest: they are within ±1 % of each other; ") != std::string::npos);
  CHECK(headline(two).find("faster than two") != std::string::npos);
  CHECK(headline(compared(1, {1, 1, 1})) == "no effect: all arms are within ±1 % of each other");
  options.repeats = 12;
  CHECK(headline(compared(1, {1, 1, 1}, options, 0.1)).find("no arm is shown to be slower") != std::string::npos);
  options.repeats = 2;
  CHECK(headline(compared(1, {1, 1, 3}, options)).find("three was measured to be the fastest; too few rounds") !=
        std::string::npos);
}

TEST_CASE("intervals are narrowed to what chains of arms allow") {
  std::vector<std::optional<Interval>> ratios{Interval{1.03, 1.1}, Interval{0.9, 1.3}, Interval{1.02, 1.2}};
  REQUIRE(make_consistent(ratios, 3));
  CHECK((ratios[0] == Interval{1.03, 1.1}));
  CHECK(ratios[1]->low == Approx(1.03 * 1.02));
  CHECK(ratios[1]->high == 1.3);
  std::vector<std::optional<Interval>> unknown{Interval{1.03, 1.1}, std::nullopt, Interval{1.02, 1.2}};
  REQUIRE(make_consistent(unknown, 3));
  CHECK(unknown[1]->high == Approx(1.1 * 1.2));
  std::vector<std::optional<Interval>> cycle{Interval{1.03, 1.1}, Interval{0.9, 0.95}, Interval{1.02, 1.2}};
  const auto before = cycle;
  CHECK_FALSE(make_consistent(cycle, 3));
  CHECK((cycle == before));
  std::vector<std::optional<Interval>> none(3);
  CHECK(make_consistent(none, 3));
  CHECK_FALSE(none[0].has_value());
}

TEST_CASE("what an arm leaves behind for the next turn is estimated in a comparison too") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0.001);
  std::vector<WarmArm> arms;
  for (size_t i = 0; i < 3; ++i) {
    const auto arm = std::make_shared<ScriptedArm>(machine, 0.1);
    if (i == 2) arm->heat = 0.1;  // slows the next turn, of any arm, by 10 %
    arms.push_back(warm_up(kNames[i], arm, {}));
  }
  CompareOptions options;
  options.repeats = 120;
  const Comparison r =
      judged(sample_rounds(arms, options, kNever, {}, [](const Sampling&, const PairVerdicts&) {}), options);
  const PairResult& pair = r.pair(0, 2);
  CHECK(pair.ratio / pair.carry_over->ratio == Approx(1 / 1.1).epsilon(0.02));  // running alone
  CHECK(r.pair(0, 1).carry_over->ratio == Approx(1).margin(0.02));
  CHECK(fmt::format("{}", fmt::join(r.warnings, "\n")).find("three (B) against one (A): a turn's time depends on") !=
        std::string::npos);
}

TEST_CASE("an arm that fails after the first round leaves what was measured") {
  const auto measured = [&](int64_t fails_after) {
    const auto machine = std::make_shared<SimulatedMachine>(1);
    auto arms = simulated_arms(machine, {1, 1});
    const auto third = std::make_shared<ScriptedArm>(machine, 0.1);
    third->fails_after = fails_after;
    arms.push_back(warm_up("three", third, {}));
    return judged(sample_rounds(arms, {}, kNever, {}, [](const Sampling&, const PairVerdicts&) {}), {});
  };
  CHECK_THROWS_AS(measured(2), UserError);
  const Comparison r = measured(6);
  CHECK(r.sampling.rounds.size() == 2);
  CHECK(r.sampling.ended == "failed");
  CHECK(r.sampling.failure_code == ExitCode::memory);
  CHECK(comparison_from(Json::parse(to_json(r, true).dump())).sampling.failure ==
        "out of memory; lower data.batch_size");
}

TEST_CASE("a comparison of several arms reads back and is judged again, and a modified one is refused") {
  CompareOptions options;
  options.repeats = 18;
  const Comparison r = compared(4, {1, 1.1, 0.9}, options);
  const Json json = Json::parse(to_json(r, true).dump());
  const Comparison again = comparison_from(json);
  CHECK(comparison_text(again, false) == comparison_text(r, false));
  CHECK(comparison_markdown(again) == comparison_markdown(r));
  CHECK(comparison_csv(again) == comparison_csv(r));
  CHECK(to_json(again, true) == json);
  for (const char* key : {"pairs", "arms", "samples", "level", "each"}) {
    Json shorter = json;
    shorter.erase(key);
    CHECK_THROWS_AS(comparison_from(shorter), UserError);
  }
  Json better = json;
  better["pairs"][1]["ratio"] = 2.0;
  CHECK_THROWS_AS(comparison_from(better), UserError);
  Json newer = json;
  newer["schema_version"] = 99;
  CHECK_THROWS_AS(comparison_from(newer), UserError);
}

TEST_CASE("a set of processes is one measurement, and its arms are created in a random order") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0.005);
  std::vector<size_t> made;
  SetOptions sets;
  for (size_t i = 0; i < 3; ++i)
    sets.make.push_back([&, i](int64_t) {
      made.push_back(i);
      const double dealt = std::exp(0.01 * std::normal_distribution<double>()(machine->random));
      return warm_up(kNames[i], std::make_shared<ScriptedArm>(machine, 0.1 * dealt), {});
    });
  CompareOptions options;
  options.repeats = 30;
  options.turn_s = 1e-9;
  const Comparison r =
      judged(sample_sets(sets, options, kNever, {}, [](const Sampling&, const PairVerdicts&) {}), options);
  CHECK(r.sets() == 30);
  CHECK(r.sampling.rounds.size() == 90);
  std::array<int, 3> first{};
  for (size_t set = 0; set < 30; ++set) ++first[made[3 * set]];
  for (const int count : first) CHECK(count >= 3);
  CHECK(comparison_text(r, false).find("30 sets of processes, 90 rounds of 6 turns of 1 step") != std::string::npos);
}

TEST_CASE("sets of processes get fewer rounds where the level needs more sets than the time allows") {
  CHECK(rounds_in_time(100, 10, 2, 1, 3) == 3);
  CHECK(rounds_in_time(40, 10, 2, 1, 3) == 2);
  CHECK(rounds_in_time(29, 10, 2, 1, 3) == 1);  // too little in any case
  CHECK(rounds_in_time(-1, 10, 2, 1, 3) == 1);
  CHECK(rounds_in_time(100, 0, 2, 1, 3) == 3);

  const auto machine = std::make_shared<SimulatedMachine>(1, 0.005);
  SetOptions sets{.make = {}, .first_set = {}, .min_sets = 4};
  for (size_t i = 0; i < 2; ++i)
    sets.make.push_back(
        [&, i](int64_t) { return warm_up(kNames[i], std::make_shared<ScriptedArm>(machine, 0.1), {}); });
  CompareOptions options;
  options.turn_s = 1e-9;
  const auto rounds = [&](Clock::time_point until) {
    const Sampling sampling = sample_sets(sets, options, until, {}, [](const Sampling&, const PairVerdicts&) {});
    return sampling.rounds.size();
  };
  CHECK(rounds(Clock::now()) == 4);  // one in each of the four sets
  options.repeats = 4;
  CHECK(rounds(Clock::now()) == 12);
}

TEST_CASE("the values of --each are split outside brackets and quotes") {
  CHECK(each_values("data.num_workers=0, 2,4").values == std::vector<std::string>{"0", "2", "4"});
  CHECK(each_values("a.b=[1, 2],{c: [3, 4], d: ']'},\"x, \\\", y\",'it''s, so'").values ==
        std::vector<std::string>{"[1, 2]", "{c: [3, 4], d: ']'}", "\"x, \\\", y\"", "'it''s, so'"});
  CHECK(each_values("k=a=1,b").values == std::vector<std::string>{"a=1", "b"});
  for (const char* wrong : {"", "k", "=1,2", "k=1", "k=1,,2", "k=1,", "k=[1,2", "k=1],[2", "k='1,2", "k="})
    CHECK_THROWS_AS(each_values(wrong), UserError);
  std::string many = "k=0";
  for (size_t i = 1; i <= kMostArms; ++i) many += fmt::format(",{}", i);
  CHECK_THROWS_AS(each_values(many), UserError);
}
