#include "compare/gate.h"

#include "base/error.h"
#include "compare/measure.h"
#include "compare/output/comparison_json.h"
#include "scripted_arm.h"
#include "support/catch.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

GateEvidence evidence(Verdict verdict, std::optional<Interval> interval) {
  GateEvidence e;
  e.verdict = verdict;
  e.interval = interval;
  e.numbers = NumbersSeen::agree;
  return e;
}

GateDecision decide(const std::string& list, const GateEvidence& e) { return trainopt::decide(parse_gate(list), e); }

const GateEvidence kCosts = evidence(Verdict::costs, Interval{0.91, 0.958}),
                   kPays = evidence(Verdict::pays, Interval{1.02, 1.05}),
                   kNoEffect = evidence(Verdict::no_effect, Interval{0.995, 1.004}),
                   kOpen = evidence(Verdict::inconclusive, Interval{0.96, 1.02}),
                   kTooFew = evidence(Verdict::inconclusive, std::nullopt);

/// B is `ratio` times as fast as A; sampling goes on until the rule is decided.
Comparison measured(double ratio, const std::string& list, uint64_t seed, std::optional<int64_t> repeats = {}) {
  const auto machine = std::make_shared<SimulatedMachine>(seed, 0.03);
  CompareOptions options;
  options.turn_s = 1e-9;
  options.seed = seed;
  options.repeats = repeats;
  options.boundary = parse_gate(list).boundary();
  const auto a = warm_up("a", std::make_shared<ScriptedArm>(machine, 0.1), options);
  const auto never = Clock::now() + std::chrono::hours(24);
  return compare(make_baseline(a, {}, options, never, {}),
                 warm_up("b", std::make_shared<ScriptedArm>(machine, 0.1 / ratio), options), options, never, {});
}

}  // namespace

TEST_CASE("a gate's rule is read from a list of words, and anything else is refused in one sentence") {
  const GateRule all = parse_gate("costs:3%,inconclusive,numbers");
  CHECK(all.costs);
  CHECK(all.inconclusive);
  CHECK(all.numbers);
  CHECK(all.at_cost == 0.03);
  CHECK(all.boundary() == Approx(0.97));
  CHECK(all.words == std::vector<std::string>{"costs:3%", "inconclusive", "numbers"});
  const GateRule plain = parse_gate("costs");
  CHECK(plain.costs);
  CHECK_FALSE(plain.inconclusive);
  CHECK_FALSE(plain.numbers);
  CHECK(plain.at_cost == 0);
  CHECK_FALSE(plain.boundary().has_value());
  CHECK(parse_gate("costs:0.03").at_cost == 0.03);

  for (const char* bad : {"",
                          ",",
                          "costs,",
                          "cost",
                          "Costs",
                          "pays",
                          "no_effect",
                          "no effect",
                          "costs:",
                          "costs:3",
                          "costs:0%",
                          "costs:100%",
                          "costs:-1%",
                          "costs:three",
                          "costs: 3%",
                          "costs,costs",
                          "costs,costs:3%",
                          "numbers,numbers",
                          "costs inconclusive",
                          "inconclusive:3%"}) {
    CAPTURE(bad);
    try {
      parse_gate(bad);
      FAIL("accepted");
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::recipe);
      CHECK(std::string(error.what()).starts_with("--fail-on"));
    }
  }
}

TEST_CASE("costs fails if the verdict is costs, and nothing else does") {
  CHECK(decide("costs", kCosts).failed);
  CHECK(decide("costs", kCosts).reason == "B costs at least 4.20 %");
  for (const auto& e : {kPays, kNoEffect, kOpen, kTooFew}) CHECK_FALSE(decide("costs", e).failed);
  CHECK(decide("costs", kPays).reason == "the verdict is pays");
  CHECK(decide("costs", kNoEffect).reason == "the verdict is no effect");
  CHECK(decide("costs", kOpen).reason == "inconclusive, and --fail-on does not name that");
}

TEST_CASE("costs:3% judges the end of the interval nearer to 1, not the measured cost") {
  const auto judged = [](double low, double high) {
    return decide("costs:3%", evidence(Verdict::costs, Interval{low, high}));
  };
  CHECK(judged(0.90, 0.96).failed);
  CHECK(judged(0.90, 0.96).reason == "B costs at least 4.00 %; costs:3% allows less than 3 %");
  CHECK(judged(0.90, 0.97).failed);
  CHECK_FALSE(judged(0.90, 0.9701).failed);  // measured 6 %, of which 2.99 % are shown
  CHECK(judged(0.90, 0.9701).reason ==
        "inconclusive: whether B costs 3 % or more is open, and --fail-on does not name that");
  CHECK_FALSE(judged(0.975, 0.985).failed);
  CHECK(judged(0.975, 0.985).reason == "B costs less than 3 %; it is -2.5 % to -1.5 % against A");
  CHECK(decide("costs", evidence(Verdict::costs, Interval{0.975, 0.985})).failed);
  // A cost that the user called no effect is still a cost of 3 %.
  CHECK(decide("costs:3%", evidence(Verdict::no_effect, Interval{0.955, 0.965})).failed);
  CHECK_FALSE(decide("costs:3%", kTooFew).failed);
}

TEST_CASE("inconclusive fails if what the gate asks is open") {
  CHECK(decide("inconclusive", kOpen).failed);
  CHECK(decide("costs,inconclusive", kOpen).failed);
  CHECK(decide("costs,inconclusive", kOpen).reason == "inconclusive");
  CHECK(decide("costs:3%,inconclusive", kOpen).failed);
  CHECK(decide("costs:3%,inconclusive", kTooFew).failed);
  CHECK_FALSE(decide("costs:5%,inconclusive", kOpen).failed);  // open as a verdict, but 5 % is ruled out
  CHECK_FALSE(decide("costs,inconclusive", kPays).failed);
  CHECK_FALSE(decide("inconclusive", kCosts).failed);
  CHECK(decide("inconclusive", kCosts).reason == "B costs, and --fail-on does not name that");
  GateEvidence open = kOpen;
  open.to_decide = "a --budget of about 12m would decide";
  CHECK(decide("costs,inconclusive", open).reason == "inconclusive; a --budget of about 12m would decide");
  CHECK(decide("costs", open).reason ==
        "inconclusive, and --fail-on does not name that; a --budget of about 12m would decide");
}

TEST_CASE("numbers fails if the numbers disagree; without it a pass says that they do") {
  GateEvidence e = kPays;
  e.numbers = NumbersSeen::disagree;
  e.disagreement = "the losses differ";
  CHECK(decide("numbers", e).failed);
  CHECK(decide("costs,numbers", e).reason == "the numbers of B disagree: the losses differ");
  CHECK_FALSE(decide("costs", e).failed);
  CHECK(decide("costs", e).reason == "the verdict is pays; the numbers disagree, and --fail-on does not name that");
  e.numbers = NumbersSeen::not_comparable;
  CHECK_FALSE(decide("numbers", e).failed);
  CHECK(decide("numbers", e).reason == "the verdict is pays; the numbers are not comparable");
  CHECK(decide("costs", e).reason == "the verdict is pays");
  e.numbers = NumbersSeen::not_compared;
  CHECK(decide("numbers", e).reason == "the verdict is pays; the numbers were not compared");
  e = kCosts;
  e.numbers = NumbersSeen::disagree;
  e.disagreement = "the losses differ";
  CHECK(decide("costs,numbers", e).reason == "B costs at least 4.20 %; the numbers of B disagree: the losses differ");
}

TEST_CASE("an arm that failed fails every gate, and another arm's name is used") {
  GateEvidence e = kPays;
  e.arm_failed = true;
  CHECK(decide("costs", e).failed);
  CHECK(decide("costs", e).reason == "an arm failed before the comparison had ended");
  e = kCosts;
  e.arm = "zero3";
  CHECK(decide("costs", e).reason == "zero3 costs at least 4.20 %");
}

TEST_CASE("several arms against the first: the gate fails if it fails for any, and says for which") {
  GateEvidence zero1 = kNoEffect, zero3 = kCosts;
  zero1.arm = "zero1";
  zero3.arm = "zero3";
  zero1.first = zero3.first = "none";
  const GateRule rule = parse_gate("costs");
  const GateDecision failed = decide_all(rule, {zero1, zero3});
  CHECK(failed.failed);
  CHECK(failed.reason == "zero3 against none: zero3 costs at least 4.20 %");
  const GateDecision passed = decide_all(rule, {zero1, zero1});
  CHECK_FALSE(passed.failed);
  CHECK(passed.reason == "zero1 against none: the verdict is no effect; zero1 against none: the verdict is no effect");
}

TEST_CASE("a decision in words and as JSON") {
  const GateRule rule = parse_gate("costs:3%,inconclusive");
  const GateDecision decision = trainopt::decide(rule, kCosts);
  CHECK(gate_text(decision) == "gate: failed: B costs at least 4.20 %; costs:3% allows less than 3 %");
  CHECK(gate_text({.failed = false, .reason = "the verdict is pays"}) == "gate: passed: the verdict is pays");
  CHECK(to_json(rule, decision) == Json{{"fail_on", {"costs:3%", "inconclusive"}},
                                        {"failed", true},
                                        {"reason", "B costs at least 4.20 %; costs:3% allows less than 3 %"}});
}

TEST_CASE("with costs:3% sampling goes on until the interval lies on one side of that cost") {
  int shown = 0, sooner = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Comparison c = measured(0.965, "costs:3%", seed), without = measured(0.965, "costs", seed);
    REQUIRE(c.sampling.ended == "decided");
    CHECK_FALSE(c.pair().interval->contains(0.97));
    shown += trainopt::decide(parse_gate("costs:3%"), c).failed;
    sooner += without.turns() < c.turns();
  }
  CHECK(shown >= 19);
  CHECK(sooner >= 10);
}

TEST_CASE("a comparison that decides nothing tells its gate what budget would") {
  const Comparison c = measured(0.97, "costs:3%", 1, 6);
  const GateRule rule = parse_gate("costs:3%");
  const GateEvidence e = evidence_of(c, rule).front();
  CHECK(e.numbers == NumbersSeen::not_compared);
  CHECK(e.to_decide.starts_with("a --budget of about "));
  CHECK(trainopt::decide(rule, e).reason.find(e.to_decide) != std::string::npos);
  Comparison failed = c;
  failed.sampling.ended = "failed";
  CHECK(evidence_of(failed, rule).front().arm_failed);
}
