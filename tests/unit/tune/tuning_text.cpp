// How a tuning reads.
#include "tune/tuning_bench.h"

#include "support/catch.h"

using namespace trainopt;

namespace {

TuningStep kept_step() {
  TuningStep step;
  step.candidate = {
      .what = "load with more threads", .change = {"data.num_workers=4"}, .estimate = 1.2, .evidence = ""};
  step.trial = {.verdict = Verdict::pays, .ratio = 1.25, .interval = Interval{1.2, 1.3}};
  step.level = 0.98;
  step.kept = true;
  step.reason = "pays";
  return step;
}

}  // namespace

TEST_CASE("ratios as people say them: faster for speed, less for memory and price") {
  CHECK(TuningText(TuningGoal::speed).gain(1.31) == "+31.0 %");
  CHECK(TuningText(TuningGoal::speed).gain(3.2) == "×3.20");
  CHECK(TuningText(TuningGoal::memory).gain(1.25) == "-20.0 %");
  CHECK(TuningText(TuningGoal::price).gain(1.25) == "-20.0 %");
}

TEST_CASE("a step's lines, its row, and the comment at its key") {
  const TuningText text(TuningGoal::speed);
  const TuningStep kept = kept_step();
  CHECK(text.measured(kept.trial) == "+25.0 % (+20.0 % to +30.0 %)");
  CHECK_THAT(text.line_of(kept, 1), ContainsSubstring("load with more threads: data.num_workers=4"));
  CHECK_THAT(text.line_of(kept, 1), ContainsSubstring("estimated +20.0 %, measured +25.0 %"));
  TuningStep refused = kept_step();
  refused.kept = false;
  refused.trial = {};
  refused.reason = "out of memory";
  CHECK_THAT(text.line_of(refused, 2), ContainsSubstring("not kept: out of memory"));
  const Tuning tuning{.steps = {kept, refused}};
  CHECK_THAT(text.table_of(tuning), ContainsSubstring("| kept: pays |"));
  CHECK_THAT(text.table_of(tuning), ContainsSubstring("| – | 98 % | out of memory |"));
  const auto comments = text.comments(tuning);
  REQUIRE(comments.size() == 1);
  CHECK(comments.at("data.num_workers") == "load with more threads: +25.0 % (+20.0 % to +30.0 %)");
}

TEST_CASE("a gain that fresh processes do not show is not confirmed") {
  const TuningText text(TuningGoal::speed);
  CommandBench::Final last{.trial = kept_step().trial, .pairs = 6};
  CHECK(text.final_text(last) ==
        "against the original: +25.0 %, 95 % interval +20.0 % to +30.0 %; 6 pairs of fresh processes");
  last.trial.verdict = Verdict::no_effect;
  CHECK_THAT(text.final_text(last), ContainsSubstring("not confirmed (no effect)"));
  last.trial.failure = "failed: it took too long and was ended";
  CHECK(text.final_text(last) == "the final comparison failed: it took too long and was ended");
  CHECK(to_json(last).at("failure") == "failed: it took too long and was ended");
  CHECK(to_json(last).at("before").is_null());
}

TEST_CASE("less memory is said in bytes too") {
  CommandBench::Final last{.trial = kept_step().trial, .pairs = 2};
  last.before = {{"samples_per_s", 1}, {"peak_memory_mib", 812}, {"price_per_million_samples", nullptr}};
  last.after = {{"samples_per_s", 1}, {"peak_memory_mib", 431}, {"price_per_million_samples", nullptr}};
  CHECK_THAT(TuningText(TuningGoal::memory).final_text(last), ContainsSubstring("812 MiB before, 431 MiB after"));
}
