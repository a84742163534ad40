// The search: what is tried, kept and claimed, on simulated machines.
#include "tune/tuner.h"

#include "base/error.h"

#include <catch2/catch.hpp>

#include <map>

namespace trainopt {
namespace {

Candidate candidate(const std::string& word, double estimate = 1.2, Exactness exactness = Exactness::same_bits) {
  return {.what = "try " + word, .change = {word}, .estimate = estimate, .exactness = exactness, .evidence = "a share"};
}

/// Answers from a script: each change has its trial, and candidates are offered until they are on.
class ScriptedBench : public TuningBench {
 public:
  Diagnosis diagnose(const Words& changes) override {
    ++diagnoses;
    if (!cannot_run.empty() && text_of(changes).find(cannot_run) != std::string::npos)
      throw UserError("the recipe does not run");
    Diagnosis diagnosis{.limit = "loader", .candidates = {}};
    for (const Candidate& each : candidates)
      if (text_of(changes).find(each.change.front()) == std::string::npos) diagnosis.candidates.push_back(each);
    return diagnosis;
  }
  Trial compare(const Words& best, const Words& changed, double level, int64_t look) override {
    compared.push_back(text_of(best) + " → " + text_of(changed));
    levels.push_back(level);
    if (const auto later = later_looks.find(changed.back()); look > 0 && later != later_looks.end())
      return later->second;
    return trials.at(changed.back());
  }
  bool over() const override { return std::ssize(compared) >= most_trials; }
  bool stopped() const override { return std::ssize(compared) >= stop_in_trial; }

  std::vector<Candidate> candidates;
  std::map<std::string, Trial> trials;
  std::map<std::string, Trial> later_looks;  ///< of a change that is compared again
  std::vector<std::string> compared;
  std::vector<double> levels;
  int64_t most_trials = 100, stop_in_trial = 100, diagnoses = 0;
  std::string cannot_run;  ///< a change with which the recipe does not run
};

Trial pays(double ratio) {
  return {.verdict = Verdict::pays,
          .ratio = ratio,
          .interval = Interval{ratio - 0.02, ratio + 0.02},
          .numbers_agree = true};
}

Tuning tuned(ScriptedBench& bench, const TuningOptions& options = {}, Tuning so_far = {}) {
  return tune(bench, options, std::move(so_far), [](const Tuning&) {});
}

}  // namespace

TEST_CASE("what pays is kept and built upon; the rest is not tried again") {
  ScriptedBench bench;
  bench.candidates = {candidate("a=1", 2), candidate("b=1", 1.5), candidate("c=1", 1.2)};
  bench.trials = {{"a=1", pays(1.5)}, {"b=1", {.verdict = Verdict::costs, .ratio = 0.9}}, {"c=1", pays(1.1)}};
  const Tuning tuning = tuned(bench);
  CHECK(bench.compared == std::vector<std::string>{" → a=1", "a=1 → a=1 b=1", "a=1 → a=1 c=1"});
  CHECK(text_of(tuning.change()) == "a=1 c=1");
  CHECK(tuning.ended == "nothing left to try");
  CHECK(bench.diagnoses == 3);  // at the start, and after each change that was kept
  CHECK(tuning.steps[1].reason == "costs");
  CHECK(tuning_from(to_json(tuning)).change() == tuning.change());
  CHECK(to_json(tuning_from(to_json(tuning))) == to_json(tuning));
}

TEST_CASE("what limits the recipe is told before the first step, and after each that is kept") {
  ScriptedBench bench;
  bench.candidates = {candidate("a=1", 2), candidate("b=1", 1.5)};
  bench.trials = {{"a=1", pays(1.5)}, {"b=1", {.verdict = Verdict::costs, .ratio = 0.9}}};
  std::vector<std::pair<size_t, size_t>> told;  // steps and limits
  tune(bench, {}, {}, [&](const Tuning& so_far) { told.emplace_back(so_far.steps.size(), so_far.limits.size()); });
  REQUIRE(told.size() >= 3);
  CHECK(told[0] == std::pair<size_t, size_t>{0, 1});
  CHECK(told[1] == std::pair<size_t, size_t>{1, 2});
  CHECK(told[2] == std::pair<size_t, size_t>{2, 2});
}

TEST_CASE("a fast candidate whose numbers are wrong is not kept") {
  ScriptedBench bench;
  bench.candidates = {candidate("wrong=1", 5)};
  Trial fast = pays(5);
  fast.numbers_agree = false;
  bench.trials = {{"wrong=1", fast}};
  const Tuning tuning = tuned(bench);
  CHECK(tuning.change().empty());
  CHECK(tuning.steps[0].reason == "faster, but its numbers disagree");
}

TEST_CASE("failures are results") {
  ScriptedBench bench;
  bench.candidates = {candidate("huge=1", 9), candidate("a=1")};
  bench.trials = {{"huge=1", {.failure = "failed (exit code 5): out of memory"}}, {"a=1", pays(1.3)}};
  const Tuning tuning = tuned(bench);
  CHECK(text_of(tuning.change()) == "a=1");
  CHECK(tuning.steps[0].reason == "failed (exit code 5): out of memory");
}

TEST_CASE("what seemed to pay is compared again once nothing else is left, a few times") {
  const Trial better{.verdict = Verdict::inconclusive, .ratio = 1.1, .numbers_agree = true},
      worse{.verdict = Verdict::inconclusive, .ratio = 0.98},
      wrong{.verdict = Verdict::inconclusive, .ratio = 1.3, .numbers_agree = false};
  ScriptedBench bench;
  bench.candidates = {candidate("a=1", 3), candidate("b=1", 2), candidate("c=1"), candidate("d=1"), candidate("e=1")};
  bench.trials = {{"a=1", better}, {"b=1", worse}, {"c=1", pays(1.2)}, {"d=1", wrong}, {"e=1", {.failure = "refused"}}};
  bench.later_looks = {{"a=1", pays(1.1)}};
  CHECK(text_of(tuned(bench).change()) == "c=1 a=1");
  CHECK(bench.compared ==
        std::vector<std::string>{" → a=1", " → b=1", " → c=1", "c=1 → c=1 d=1", "c=1 → c=1 e=1", "c=1 → c=1 a=1"});
  bench.compared.clear();
  bench.later_looks.clear();
  CHECK(text_of(tuned(bench).change()) == "c=1");
  CHECK(std::ranges::count(bench.compared, "c=1 → c=1 a=1") == kMostLooks - 1);
}

TEST_CASE("of a number, what lies beyond a value that did not pay is not tried") {
  const auto threads = [](int64_t count, double estimate) {
    Candidate one = candidate(fmt::format("threads={}", count), estimate);
    one.what = "load with other threads";
    one.from = 4;
    return one;
  };
  ScriptedBench bench;
  bench.candidates = {threads(8, 2), threads(16, 1.9), threads(6, 1.5), threads(2, 1.4), threads(1, 1.3)};
  for (const char* word : {"threads=8", "threads=2"}) bench.trials[word] = {.verdict = Verdict::costs, .ratio = 0.9};
  bench.trials["threads=6"] = {.verdict = Verdict::inconclusive, .ratio = 0.99};
  tuned(bench);
  CHECK(bench.compared == std::vector<std::string>{" → threads=8", " → threads=6", " → threads=2"});
}

TEST_CASE("a change after which the recipe does not run is taken back") {
  ScriptedBench bench;
  bench.candidates = {candidate("a=1", 3), candidate("b=1", 2)};
  bench.trials = {{"a=1", pays(1.5)}, {"b=1", pays(1.2)}};
  bench.cannot_run = "a=1";
  const Tuning tuning = tuned(bench);
  CHECK(text_of(tuning.change()) == "b=1");
  CHECK(tuning.steps[0].reason == "the recipe does not run");
}

TEST_CASE("a trial that the user stops does not count") {
  ScriptedBench bench;
  bench.candidates = {candidate("a=1", 3), candidate("b=1", 2)};
  bench.trials = {{"a=1", pays(1.5)}, {"b=1", {.failure = "failed (exit code 130): stopped"}}};
  bench.most_trials = bench.stop_in_trial = 2;
  const Tuning half = tuned(bench);
  CHECK(half.ended == "stopped");
  CHECK(half.steps.size() == 1);
}

TEST_CASE("what changes the training needs to be allowed") {
  ScriptedBench bench;
  bench.candidates = {candidate("other=1", 9, Exactness::new_math)};
  Trial faster = pays(2);
  faster.numbers_agree = false;
  bench.trials = {{"other=1", faster}};
  const Tuning refused = tuned(bench);
  CHECK(refused.steps.empty());
  REQUIRE(refused.not_allowed.size() == 1);
  CHECK(refused.not_allowed[0].change == Words{"other=1"});
  const Tuning allowed = tuned(bench, {.allow_new_math = true});
  CHECK(text_of(allowed.change()) == "other=1");
}

TEST_CASE("a tuning ends when its time is up, and continues where it was") {
  ScriptedBench bench;
  bench.candidates = {candidate("a=1", 3), candidate("b=1", 2)};
  bench.trials = {{"a=1", pays(1.5)}, {"b=1", pays(1.2)}};
  bench.most_trials = 1;
  const Tuning half = tuned(bench);
  CHECK(half.ended == "the time is up");
  CHECK(half.steps.size() == 1);
  bench.most_trials = 100;
  const Tuning whole = tuned(bench, {}, tuning_from(to_json(half)));
  CHECK(bench.compared.back() == "a=1 → a=1 b=1");
  CHECK(bench.compared.size() == 2);
  CHECK(text_of(whole.change()) == "a=1 b=1");
}

TEST_CASE("a later value replaces an earlier one for the same key") {
  CHECK(merged({"a=1", "b=2"}, {"a=3"}) == Words{"b=2", "a=3"});
  CHECK(merged({}, {"a=3"}) == Words{"a=3"});
}

TEST_CASE("the errors of all trials sum to that of the tuning") {
  double sum = 0;
  for (size_t number = 1; number <= 100000; ++number) {
    CHECK(level_of_trial(0.95, number) < 1);
    sum += 1 - level_of_trial(0.95, number);
  }
  CHECK(sum < 0.05);
  CHECK(sum == Approx(0.05).epsilon(0.005));  // the rest follows slowly
}

}  // namespace trainopt
