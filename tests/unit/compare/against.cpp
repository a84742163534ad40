#include "compare/against.h"

#include "base/error.h"
#include "scripted_arm.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

const Clock::time_point kLater = Clock::now() + std::chrono::hours(24);

/// Processes whose speed varies by 2 % from one to the next and by 0.1 % within their life.
struct VaryingProcesses {
  explicit VaryingProcesses(uint64_t seed) : machine(std::make_shared<SimulatedMachine>(seed, 0.001)) {}

  MakeArm maker(double step_s, int64_t step_samples = 32) {
    return [this, step_s, step_samples](int64_t number) {
      if (number == fails_in) throw UserError("out of memory; lower data.batch_size", ExitCode::memory);
      const double dealt = std::exp(0.02 * std::normal_distribution<double>()(machine->random));
      return warm_up("job", std::make_shared<ScriptedArm>(machine, step_s * dealt, step_samples), {});
    };
  }
  Sampling measure(double ratio, int64_t processes, CompareOptions options = {}, Clock::time_point until = kLater,
                   const Observer& observer = {}) {
    options.turn_s = 1e-9;
    return sample_alone(maker(0.1 / ratio), processes, options, until, observer);
  }

  std::shared_ptr<SimulatedMachine> machine;
  int64_t fails_in = -1;
};

/// An earlier measurement as a stored arm.
StoredArm as_stored(Sampling sampling) {
  Against earlier;
  earlier.stored.seconds_per_sample = {1};
  earlier.sampling = std::move(sampling);
  return measured_arm(earlier);
}

Against held(VaryingProcesses& machine, double ratio, int64_t processes) {
  Against result;
  result.stored = as_stored(machine.measure(1, processes));
  result.sampling = machine.measure(ratio, processes);
  judge_against(result);
  return result;
}

}  // namespace

TEST_CASE("each process is one measurement: equal jobs are seldom judged different, and an effect is found") {
  int wrong = 0, contained = 0, found = 0, wrong_by_turns = 0;
  constexpr int kTrials = 400;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    VaryingProcesses machine(seed);
    const Against equal = held(machine, 1, 6), slower = held(machine, 0.8, 6);
    wrong += equal.pair.verdict == Verdict::pays || equal.pair.verdict == Verdict::costs;
    contained += slower.pair.interval->contains(0.8);
    found += slower.pair.verdict == Verdict::costs;
    // The same turns, every two taken for a measurement of their own.
    Against by_turns = equal;
    int64_t number = 0;
    for (Round& round : by_turns.sampling.rounds) round.set = number++;
    by_turns.stored.seconds_per_sample.clear();
    for (const double seconds : equal.stored.seconds_per_sample)
      by_turns.stored.seconds_per_sample.insert(by_turns.stored.seconds_per_sample.end(), 3, seconds);
    judge_against(by_turns);
    wrong_by_turns += by_turns.pair.verdict == Verdict::pays || by_turns.pair.verdict == Verdict::costs;
  }
  CHECK(wrong < 0.07 * kTrials);
  CHECK(contained > 0.93 * kTrials);
  CHECK(found == kTrials);
  CHECK(wrong_by_turns > 0.2 * kTrials);
}

TEST_CASE("throughput is compared in samples, whatever the batch size") {
  VaryingProcesses machine(1);
  CompareOptions options;
  options.turn_s = 1e-9;
  Against result;
  result.stored = as_stored(machine.measure(1, 6));
  result.sampling = sample_alone(machine.maker(0.1, 64), 6, options, kLater, {});  // twice the samples in the same time
  judge_against(result);
  CHECK(result.pair.verdict == Verdict::pays);
  CHECK(result.pair.ratio == Approx(2).epsilon(0.05));
  CHECK(result.arm.samples_per_s == Approx(640).epsilon(0.05));
}

TEST_CASE("the interval is wider than pairs of the same processes would give, and both widths are measured") {
  VaryingProcesses machine(1);
  Against result = held(machine, 1, 6);
  CHECK_FALSE(result.paired_half_width.has_value());  // the earlier measurement was not paired either
  result.stored.pairing = Pairing{6, 0.002};
  judge_against(result);
  CHECK(*result.paired_half_width == Approx(std::expm1(2.570581836 * 0.002 / std::sqrt(6.0))));
  CHECK(*result.half_width == Approx(std::sqrt(result.pair.interval->high / result.pair.interval->low) - 1));
  CHECK(*result.half_width > *result.paired_half_width);
  const std::string text = against_text(result, false);
  CHECK(text.find(fmt::format("±{:.1f} %, where 6 pairs of processes that took turns would have ±0.2 %, judging by the "
                              "6 pairs stored",
                              100 * *result.half_width)) != std::string::npos);
}

TEST_CASE("nothing is decided without several processes on both sides, or on another machine") {
  VaryingProcesses machine(1);
  const Against good = held(machine, 0.5, 4);
  REQUIRE(good.pair.verdict == Verdict::costs);
  const GateRule rule = parse_gate("costs:3%");
  CHECK(decide(rule, evidence_of(good, rule)).failed);
  const auto undecided = [&](const std::function<void(Against&)>& change, const std::string& why) {
    Against changed = good;
    change(changed);
    judge_against(changed);
    CHECK(changed.pair.verdict == Verdict::inconclusive);
    CHECK(changed.no_verdict.find(why) != std::string::npos);
    CHECK(against_text(changed, false).find("inconclusive: B against A is -") != std::string::npos);
    const GateDecision decision = decide(rule, evidence_of(changed, rule));
    CHECK_FALSE(decision.failed);
    CHECK(decision.reason.find(why) != std::string::npos);
  };
  undecided([](Against& a) { a.stored.own_processes = false; }, "--own-processes");
  undecided([](Against& a) { a.stored.seconds_per_sample.resize(1); }, "the stored result has one process");
  undecided([](Against& a) { a.sampling.rounds.resize(3); }, "only one process was measured");
  undecided([](Against& a) { a.differences.push_back({"cpu.model", "X", "Y", true}); }, "cpu.model: X then, Y now");
  Against software = good;
  software.differences.push_back({"libtorch", "2.10", "2.11"});
  judge_against(software);
  CHECK(software.pair.verdict == Verdict::costs);
}

TEST_CASE("sampling alone ends with its number, the budget, --repeats, a stop or a failure, and keeps what it has") {
  CHECK(VaryingProcesses(1).measure(1, 5).ended == "processes");
  CHECK(VaryingProcesses(1).measure(1, 5).rounds.size() == 15);
  CHECK(seconds_per_sample(VaryingProcesses(1).measure(1, 2)).size() == 2);
  const Sampling spent = VaryingProcesses(1).measure(1, 5, {}, Clock::now());
  CHECK(spent.ended == "budget");
  CHECK(seconds_per_sample(spent).size() == 1);
  CompareOptions options;
  options.repeats = 7;
  const Sampling repeated = VaryingProcesses(1).measure(1, 3, options, Clock::now());
  CHECK(repeated.ended == "repeats");
  CHECK(seconds_per_sample(repeated).size() == 7);
  const std::atomic<int> stop{15};
  Observer observer;
  observer.stop = &stop;
  const Sampling stopped = VaryingProcesses(1).measure(1, 5, {}, kLater, observer);
  CHECK(stopped.ended == "stopped");
  CHECK(stopped.rounds.size() == 1);
  VaryingProcesses failing(1);
  failing.fails_in = 3;
  const Sampling failed = failing.measure(1, 5);
  CHECK(failed.ended == "failed");
  CHECK(seconds_per_sample(failed).size() == 3);
  CHECK(failed.failure_code == ExitCode::memory);
  failing.fails_in = 0;
  CHECK_THROWS_AS(failing.measure(1, 5), UserError);
}

TEST_CASE("a result of --against reads back and is judged again, and a modified one is refused") {
  VaryingProcesses machine(3);
  Against result = held(machine, 0.9, 4);
  result.stored.file = "old/result.json";
  result.stored.arm = "B";
  result.stored.pairing = Pairing{4, 0.003};
  result.sampling.ended = "processes";
  result.differences = {{"libtorch", "2.10", "2.11"}, {"data.batch_size", "8", "16"}};
  judge_against(result);
  const Json json = Json::parse(to_json(result, true).dump());
  CHECK(is_against(json));
  const Against again = against_from(json);
  CHECK(again.pair.ratio == result.pair.ratio);
  CHECK(again.pair.interval == result.pair.interval);
  CHECK(again.pair.verdict == result.pair.verdict);
  CHECK(against_text(again, false) == against_text(result, false));
  CHECK(measured_arm(again).seconds_per_sample == measured_arm(result).seconds_per_sample);
  CHECK(measured_arm(again).pairing->pairs == 4);
  for (const char* key : {"ratio", "level", "arms", "samples", "differences", "verdict"}) {
    Json shorter = json;
    shorter.erase(key);
    CHECK_THROWS_AS(against_from(shorter), UserError);
  }
  Json other = json;
  other["verdict"] = "pays";
  CHECK_THROWS_AS(against_from(other), UserError);
}

TEST_CASE("differences of recipe, environment and plan name what matters, and the machine is told apart") {
  const Json then = {{"name", "a"}, {"run_dir", nullptr}, {"bench", {{"warmup_steps", 3}}}, {"data", {{"size", 8}}}},
             now = {{"name", "b"}, {"run_dir", "x"}, {"bench", {{"warmup_steps", 9}}}, {"data", {{"size", 9}}}};
  REQUIRE(recipe_differences(then, now).size() == 1);
  CHECK(text(recipe_differences(then, now).front()) == "data.size: 8 then, 9 now");
  CHECK(recipe_differences(Json(), now).empty());

  const auto environment = [](const char* cpu, const char* libtorch, Json gpus, int threads) {
    return Json{{"libtorch", libtorch},
                {"cpu", {{"model", cpu}, {"threads", threads}}},
                {"gpus", std::move(gpus)},
                {"infiniband", Json::array()}};
  };
  const Json gpu = {{"name", "G"}, {"uuid", "1"}, {"local_cpus", "0-3"}};
  const auto same = environment_differences(environment("X", "2.11", {gpu}, 1), environment("X", "2.11", {gpu}, 8));
  CHECK(same.empty());
  const auto other = environment_differences(environment("X", "2.10", Json::array({gpu}), 1),
                                             environment("Y", "2.11", Json::array(), 1));
  REQUIRE(other.size() == 4);
  for (const Difference& one : other) CHECK(one.of_machine == (one.what == "cpu.model" || one.what == "gpus.0.name"));

  const auto plan = [](const char* device, int threads, const char* slot) {
    return Json{{"device", {{"name", device}, {"reason", "auto"}, {"threads", threads}}}, {"slots", {{"task", slot}}}};
  };
  CHECK(plan_differences(plan("cuda:0", 2, "x"), plan("cuda:1", 2, "y"), false).size() == 2);
  CHECK_FALSE(plan_differences(plan("cuda:0", 2, "x"), plan("cuda:1", 2, "y"), true).front().of_machine);
  CHECK(plan_differences(plan("cpu", 2, "x"), plan("cuda:0", 2, "x"), true).front().of_machine);
  CHECK_FALSE(plan_differences(plan("cpu", 2, "x"), plan("cpu", 1, "x"), true).front().of_machine);
}
