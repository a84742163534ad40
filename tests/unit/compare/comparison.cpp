#include "compare/comparison.h"

#include "base/philox.h"
#include "compare/measure.h"
#include "compare/output/comparison_json.h"
#include "compare/output/comparison_text.h"
#include "scripted_arm.h"
#include "support/catch.h"

#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// B is `ratio` times as fast as A.
Comparison contest(uint64_t seed, double ratio, CompareOptions options = {}, double noise = 0.01, double drift = 0,
                   Clock::time_point until = kNever) {
  const auto machine = std::make_shared<SimulatedMachine>(seed, noise);
  machine->drift = drift;
  options.seed = seed;
  options.turn_s = 1e-9;
  const auto a = warm_up("a", std::make_shared<ScriptedArm>(machine, 0.1), options);
  return compare(make_baseline(a, {}, options, kNever, {}),
                 warm_up("b", std::make_shared<ScriptedArm>(machine, 0.1 / ratio), options), options, until, {});
}

}  // namespace

TEST_CASE("a block compares throughput in either order") {
  Block block;
  for (size_t i = 0; i < 4; ++i)
    block.turns[i] = Turn{.steps = 1,
                          .samples = 10,
                          .seconds = i == 0 || i == 3 ? 2.0 : 1.0,
                          .step_ms = {},
                          .losses = {},
                          .sm_clock_mhz = {},
                          .throttle = {}};
  block.order = Order::abba;
  CHECK(block.log_ratio() == Approx(std::log(2.0)));
  block.order = Order::baab;
  CHECK(block.log_ratio() == Approx(-std::log(2.0)));
  CHECK(block.samples(true) == 20);
  const Block again = block_from(Json::parse(to_json(block).dump()));
  CHECK(again.log_ratio() == block.log_ratio());
  CHECK(again.order == block.order);
}

TEST_CASE("a block compares tokens where both arms have them, otherwise samples") {
  Block block;
  for (size_t i = 0; i < 4; ++i) {
    block.turns[i].samples = 10;
    block.turns[i].seconds = 1;
    block.turns[i].tokens = block.is_a(i) ? 80 : 160;
  }
  CHECK(block.log_ratio() == Approx(std::log(2.0)));
  const Measurement both = measurement_of({&block, 1});
  CHECK(both.seconds_per_sample.a / both.seconds_per_sample.b == Approx(2));
  CHECK(both.longest_turn.b == Approx(1.0 / 160));
  const Block again = block_from(Json::parse(to_json(block).dump()));
  CHECK(again.log_ratio() == block.log_ratio());
  block.turns[1].tokens = 0;
  CHECK(block.log_ratio() == 0);
}

TEST_CASE(
    "a faster arm pays, a slower one costs, an equal one has no effect, and the interval contains the true ratio") {
  for (const auto& [ratio, verdict] :
       {std::pair(1.05, Verdict::pays), {0.95, Verdict::costs}, {1.0, Verdict::no_effect}}) {
    int held = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const Comparison c = contest(seed, ratio);
      REQUIRE(c.sampling.ended == "decided");
      CHECK(c.pair().verdict == verdict);
      CHECK(c.pair().interval.has_value());
      held += c.pair().interval->contains(ratio);
    }
    CHECK(held >= 36);
  }
}

TEST_CASE("a drift of 20 % over the run does not change the verdict") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CHECK(contest(seed, 1.0, {}, 0.01, 0.2 / 200).pair().verdict == Verdict::no_effect);
    CHECK(contest(seed, 1.05, {}, 0.01, 0.2 / 200).pair().verdict == Verdict::pays);
  }
}

TEST_CASE("arms with different batch sizes take turns over the same number of samples") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0.001);
  CompareOptions options;
  const auto a = warm_up("a", std::make_shared<ScriptedArm>(machine, 0.1, 32), options);
  const Comparison c =
      compare(make_baseline(a, {}, options, kNever, {}),
              warm_up("b", std::make_shared<ScriptedArm>(machine, 0.2, 96), options), options, kNever, {});
  for (const Block& block : c.pair().blocks) {
    CHECK(block.samples(true) == block.samples(false));
    for (const Turn& turn : block.turns) CHECK(turn.seconds > 0.19);  // 0.25 s as predicted from the warm-up
  }
  CHECK(c.pair().ratio == Approx(1.5).epsilon(0.01));
}

TEST_CASE("B catches up with A before the first block, so that both see the same batches") {
  const auto machine = std::make_shared<SimulatedMachine>(1);
  CompareOptions options;
  options.repeats = 8;
  const auto a = warm_up("a", std::make_shared<ScriptedArm>(machine, 0.1, 96), options),
             b = warm_up("b", std::make_shared<ScriptedArm>(machine, 0.1, 32), options);
  a.arm->turn(17);  // as the noise phase does
  compare(make_baseline(a, {}, options, kNever, {}), b, options, kNever, {});
  CHECK(b.arm->steps_taken() == 3 * a.arm->steps_taken());
}

TEST_CASE("a switch that had no effect in one arm only is shown") {
  Comparison c = contest(1, 1.0);
  c.arms[0].facts.receipts["amp"] = {
      {"requested", "true"}, {"observed", "all in bfloat16"}, {"effective", true}, {"reason", ""}};
  c.arms[1].facts.receipts["amp"] = {{"requested", "true"},
                                     {"observed", "all in float32"},
                                     {"effective", false},
                                     {"reason", "nothing ran in bfloat16"}};
  CHECK(comparison_text(c, false).find("amp: A all in bfloat16; B NO EFFECT: nothing ran in bfloat16") !=
        std::string::npos);
  c.arms[1].facts.receipts = c.arms[0].facts.receipts;
  CHECK(comparison_text(c, false).find("amp:") == std::string::npos);
}

TEST_CASE("each rank's memory, state and traffic are shown and read back, and may be absent") {
  Comparison c = contest(1, 1.0);
  CHECK(comparison_text(c, false).find("state") == std::string::npos);
  c.arms[0].facts.ranks = {{.peak_memory_mib = {}, .state_mib = 171, .sent_mib = 0}};
  CHECK_THAT(comparison_text(c, false), ContainsSubstring(", state 171.0 MiB, first step after"));
  c.arms[0].facts.ranks = {{.peak_memory_mib = 800, .state_mib = 171, .sent_mib = 85.4},
                           {.peak_memory_mib = 812, .state_mib = 170, .sent_mib = 85.4}};
  c.arms[0].facts.peak_memory_mib = 812;
  const std::string words = "memory 812.0 MiB a rank, state 171.0 MiB, sends 85.4 MiB a step";
  CHECK_THAT(comparison_text(c, false), ContainsSubstring(words));
  CHECK_THAT(comparison_markdown(c), ContainsSubstring(words));

  Json json = Json::parse(to_json(c, true).dump());
  CHECK(json.at("arms").at("a").at("ranks") ==
        Json::parse(R"([{"peak_memory_mib": 800.0, "state_mib": 171.0, "sent_mib": 85.4},
                        {"peak_memory_mib": 812.0, "state_mib": 170.0, "sent_mib": 85.4}])"));
  CHECK(comparison_text(comparison_from(json), false) == comparison_text(c, false));
  json.at("arms").at("a").erase("ranks");  // as written by earlier versions
  CHECK(comparison_from(json).arms[0].facts.ranks.empty());
}

TEST_CASE("the ratio is that of total times, and the headline gives the lower end of the interval first") {
  const Comparison c = contest(3, 1.04);
  double of_a = 0, of_b = 0;
  for (const Block& block : c.pair().blocks) of_a += block.seconds(true), of_b += block.seconds(false);
  CHECK(c.pair().ratio == Approx(of_a / of_b));
  CHECK(c.turns() >= kTurnsToSeeStalls);
  const std::string text = comparison_text(c, false);
  CHECK(text.find(fmt::format("pays: B is at least {:.1f} % faster; measured {}", 100 * (c.pair().interval->low - 1),
                              percent_faster(c.pair().ratio))) != std::string::npos);
  CHECK(text.find("stalls that come less often than once in 52 turns") != std::string::npos);
}

TEST_CASE("an effect too large for rare stalls to undo is decided sooner") {
  const Comparison c = contest(1, 2.0);
  CHECK(c.sampling.ended == "decided");
  CHECK(c.pair().verdict == Verdict::pays);
  CHECK(c.turns() < kTurnsToSeeStalls);
}

TEST_CASE("a verdict keeps its interval even if the ratio moves after the look that decided it") {
  Comparison c;
  c.sampling.names = {"a", "b"};
  c.sampling.facts.resize(2);
  c.sampling.ended = "stopped";
  PhiloxStream random(3);
  for (int64_t number = 0; number < 240; ++number) {
    Round round;
    round.order = block_order(c.seed, number) == Order::abba ? std::vector<size_t>{0, 1} : std::vector<size_t>{1, 0};
    for (size_t i = 0; i < 4; ++i) {
      Turn turn;
      turn.samples = 1;
      turn.seconds = (1 + 0.001 * random.next_normal()) * (round.arm_of(i) == 0 && number < 60 ? 1.1 : 1.0);
      round.turns.push_back(turn);
    }
    c.sampling.rounds.push_back(std::move(round));
  }
  judge(c);
  CHECK(c.pair().verdict == Verdict::pays);
  REQUIRE(c.pair().interval.has_value());
  CHECK(c.pair().interval->low > 1.05);
}

TEST_CASE("with --precision, sampling continues after the decision") {
  CompareOptions options;
  options.precision = 0.002;
  const Comparison exact = contest(1, 1.04, options), typical = contest(1, 1.04);
  CHECK(exact.pair().blocks.size() > typical.pair().blocks.size());
  CHECK(exact.pair().interval->high / exact.pair().ratio <= 1.002);
  CHECK(exact.pair().ratio / exact.pair().interval->low <= 1.002);
}

TEST_CASE("an arm that stalls occasionally is not judged by its typical turns, and the report warns") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0.005);
  CompareOptions options;
  options.repeats = 80;
  options.turn_s = 1e-9;
  const auto a = warm_up("a", std::make_shared<ScriptedArm>(machine, 0.1), options);
  const auto stalling = std::make_shared<ScriptedArm>(machine, 0.1 / 1.06);
  const auto b = warm_up("b", stalling, options);
  stalling->stalls_every = 25;
  stalling->stall = 1 + 25 * 0.06;  // as much as it gains between stalls
  const Comparison c = compare(make_baseline(a, {}, options, kNever, {}), b, options, kNever, {});
  CHECK(c.pair().verdict != Verdict::pays);
  CHECK(c.pair().ratio == Approx(1).epsilon(0.02));
  CHECK(c.pair().typical->low > 1.04);
  const std::string all = fmt::format("{}", fmt::join(c.warnings, "\n"));
  CHECK(all.find("in a typical block B against A is") != std::string::npos);
  CHECK(comparison_text(c, false).find("typical block B against A is +") != std::string::npos);
}

TEST_CASE("carry-over between the arms is reported") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0.001);
  CompareOptions options;
  options.repeats = 40;
  const auto cool = std::make_shared<ScriptedArm>(machine, 0.1), hot = std::make_shared<ScriptedArm>(machine, 0.1);
  hot->heat = 0.1;  // slows the next turn, of either arm, by 10 %
  const Comparison c = compare(make_baseline(warm_up("a", cool, options), {}, options, kNever, {}),
                               warm_up("b", hot, options), options, kNever, {});
  // A follows B in five of eight turns and B follows itself in three: a net quarter of the heat is charged to A.
  // Running alone, B would bear all of it.
  CHECK(std::log(c.pair().carry_over->ratio) == Approx(1.25 * std::log1p(0.1)).epsilon(0.1));
  CHECK(c.pair().ratio / c.pair().carry_over->ratio == Approx(1 / 1.1).epsilon(0.02));
  CHECK(std::log(c.pair().ratio) == Approx(std::log1p(0.1) / 4).epsilon(0.3));
  CHECK(fmt::format("{}", fmt::join(c.warnings, "\n")).find("which arm took the previous turn") != std::string::npos);
  CHECK(contest(1, 1.0).pair().carry_over->interval->contains(1));
}

TEST_CASE("sampling ends with the budget, with --repeats, or when it is stopped") {
  const Comparison spent = contest(1, 1.0, {}, 0.3, 0, Clock::now());
  CHECK(spent.sampling.ended == "budget");
  CHECK(spent.pair().verdict == Verdict::inconclusive);
  CHECK_FALSE(spent.pair().interval.has_value());

  CompareOptions options;
  options.repeats = 21;
  const Comparison repeated =
      contest(1, 1.2, options, 0.01, 0, Clock::now());  // although time is up and the result is clear sooner
  CHECK(repeated.sampling.ended == "repeats");
  CHECK(repeated.pair().blocks.size() == 21);
  CHECK(repeated.pair().verdict == Verdict::pays);

  std::atomic<int> stop{0};
  const auto machine = std::make_shared<SimulatedMachine>(1);
  const Baseline a{.a = warm_up("a", std::make_shared<ScriptedArm>(machine, 0.1), {}), .twins = {}, .noise = {}};
  const auto b = warm_up("b", std::make_shared<ScriptedArm>(machine, 0.1), {});
  Observer observer;
  observer.stop = &stop;
  observer.now = [&](const std::string& what) { stop = what.starts_with("block 2") ? 15 : 0; };
  const Comparison stopped = compare(a, b, {}, kNever, observer);
  CHECK(stopped.sampling.ended == "stopped");
  CHECK(stopped.sampling.rounds.size() == 2);
  observer.now = [](const std::string&) {};
  CHECK_THROWS_WITH(compare(a, b, {}, kNever, observer), ContainsSubstring("stopped before the first round"));
}

TEST_CASE("a throttled clock and too much noise for min_effect are reported") {
  const auto machine = std::make_shared<SimulatedMachine>(1, 0.2);
  const auto throttled = std::make_shared<ScriptedArm>(machine, 0.1);
  throttled->throttle = 4;
  CompareOptions options;
  options.repeats = 8;
  const Comparison c = compare(make_baseline(warm_up("a", throttled, options), {}, options, kNever, {}),
                               warm_up("b", std::make_shared<ScriptedArm>(machine, 0.1), options), options, kNever, {});
  const std::string all = fmt::format("{}", fmt::join(c.warnings, "\n"));
  CHECK(all.find("clock was throttled") != std::string::npos);
  const auto& ways = c.to_decide;
  CHECK(std::any_of(ways.begin(), ways.end(), [](const ToDecide& each) {
    return each.what.find("takes about") != std::string::npos && each.budget_s > 0;
  }));
}

TEST_CASE("an arm that fails before the first block ends the comparison; later, the blocks before are kept") {
  const auto machine = std::make_shared<SimulatedMachine>(1);
  const auto compared = [&](int64_t fails_after) {
    const auto b = std::make_shared<ScriptedArm>(machine, 0.1);
    b->fails_after = fails_after;
    const auto a = warm_up("a", std::make_shared<ScriptedArm>(machine, 0.1), {});
    return compare(make_baseline(a, {}, {}, kNever, {}), warm_up("b", b, {}), {}, kNever, {});
  };
  CHECK_THROWS_AS(compared(2), UserError);
  const Comparison c = compared(6);  // the warm-up and two blocks take five turns
  CHECK(c.pair().blocks.size() == 2);
  CHECK(c.sampling.ended == "failed");
  CHECK(c.sampling.failure == "out of memory; lower data.batch_size");
  CHECK(c.sampling.failure_code == ExitCode::memory);
  CHECK(c.pair().verdict == Verdict::inconclusive);
  CHECK(comparison_from(Json::parse(to_json(c, true).dump())).sampling.failure == c.sampling.failure);
}

TEST_CASE("the result so far is kept at every look") {
  const auto machine = std::make_shared<SimulatedMachine>(1);
  const auto a = warm_up("a", std::make_shared<ScriptedArm>(machine, 0.1), {});
  std::vector<size_t> kept;
  Observer observer;
  observer.keep = [&](const Comparison& c) {
    CHECK(c.sampling.ended == "unfinished");
    CHECK(comparison_from(Json::parse(to_json(c, true).dump())).pair().ratio == c.pair().ratio);
    kept.push_back(c.pair().blocks.size());
  };
  CompareOptions options;
  options.repeats = 20;
  compare(make_baseline(a, {}, {}, kNever, {}), warm_up("b", std::make_shared<ScriptedArm>(machine, 0.1), options),
          options, kNever, observer);
  CHECK(kept == std::vector<size_t>{8, 12, 18});
}

TEST_CASE("a result reads back and is judged again, and a modified one is refused") {
  const Comparison c = contest(3, 1.04);
  const Json json = Json::parse(to_json(c, true).dump());
  const Comparison again = comparison_from(json);
  CHECK(again.pair().verdict == c.pair().verdict);
  CHECK(again.pair().ratio == c.pair().ratio);
  CHECK(again.pair().interval == c.pair().interval);
  CHECK(comparison_text(again, false) == comparison_text(c, false));
  for (const char* key : {"verdict", "ratio", "interval", "blocks", "numerics", "level", "min_effect", "paired"})
    CHECK(json.contains(key));

  Json better = json;
  better["ratio"] = 1.5;
  CHECK_THROWS_AS(comparison_from(better), UserError);
  Json shorter = json;
  shorter.erase("arms");
  CHECK_THROWS_AS(comparison_from(shorter), UserError);
  Json timeless = json;
  timeless["samples"][1]["turns"][2]["seconds"] = 0;
  CHECK_THROWS_WITH(comparison_from(timeless), ContainsSubstring("turns without time"));
  Json newer = json;
  newer["schema_version"] = 99;
  CHECK_THROWS_AS(comparison_from(newer), UserError);
}
