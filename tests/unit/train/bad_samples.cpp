// Samples that cannot be used: what an evaluation does without them, and who counts them after a resume.
#include "train/bad_samples.h"

#include "support/captured_log.h"
#include "support/catch.h"
#include "support/plans.h"
#include "train/checkpoint/archive.h"
#include "unit/data/probe.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// Some samples of a ProbeDataset.
class ProbeSubset : public ProbeDataset {
 public:
  explicit ProbeSubset(std::vector<int64_t> samples)
      : ProbeDataset(static_cast<int64_t>(samples.size()), 8), samples_(std::move(samples)) {}
  int64_t label(int64_t sample) const override { return ProbeDataset::label(of(sample)); }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    ProbeDataset::load(of(sample), key, pipeline, destination, scratch);
  }

 private:
  int64_t of(int64_t sample) const { return samples_[static_cast<size_t>(sample)]; }
  std::vector<int64_t> samples_;
};

/// Evaluates after the second and the fourth step, two samples at a time.
Plan plan_evaluated_on(std::shared_ptr<const Dataset> dataset, int64_t budget) {
  Plan plan = small_plan(4);
  DataPlan held_out = plan.data;
  held_out.dataset = std::move(dataset);
  held_out.shuffle = held_out.drop_last = false;
  held_out.batch_size = 2;
  held_out.bad_samples = {.substitute = true, .budget = budget};
  plan.evaluation = EvaluationPlan{.every_n_steps = 2, .at_end = true, .data = held_out};
  return plan;
}

std::shared_ptr<ProbeDataset> with_four_bad() {
  auto dataset = std::make_shared<ProbeDataset>(12, 8);
  dataset->bad = {3, 6, 7, 11};  // two of them are a whole batch
  return dataset;
}

size_t times(const std::string& all, const std::string& words) {
  size_t count = 0;
  for (size_t at = all.find(words); at != std::string::npos; at = all.find(words, at + 1)) ++count;
  return count;
}

RefusedSample refused(int64_t sample) { return {sample, fmt::format("probe {}", sample), "made to be bad"}; }

/// What a checkpoint has after each of `all`, one per rank, was saved.
ArchiveReader stored(const std::vector<BadSamples>& all) {
  const auto ranks = static_cast<int64_t>(all.size());
  Json list = Json::array();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const RankPosition position{.rank = rank, .ranks = ranks};
    ArchiveWriter archive(position);
    save(all[static_cast<size_t>(rank)], position, archive);
    append_new(list, archive.lists().at("bad_samples"));
  }
  return {"test", {}, {{"ranks", ranks}, {"bad_samples", list}}};
}

}  // namespace

TEST_CASE("an evaluation leaves out the samples that cannot be used, and lists each once") {
  Rows rows, expected;
  std::string log_text;
  {
    const CapturedLog log;
    Trainer trainer(plan_evaluated_on(with_four_bad(), 4), {}, rows, never_stopped());
    trainer.run();
    log_text = log.text();
    CHECK((trainer.bad_samples().evaluation ==
           std::vector<RefusedSample>{refused(3), refused(6), refused(7), refused(11)}));
    CHECK(trainer.bad_samples().training.empty());
  }
  CHECK(times(log_text, "the evaluation leaves out probe") == 4);  // not again in the second evaluation
  CHECK(times(log_text, "takes the place") == 0);
  const auto readable = std::make_shared<ProbeSubset>(std::vector<int64_t>{0, 1, 2, 4, 5, 8, 9, 10});
  Trainer(plan_evaluated_on(readable, 0), {}, expected, never_stopped()).run();
  REQUIRE(rows.evaluations.size() == 2);
  REQUIRE(expected.evaluations.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(rows.evaluations[i].samples == 8);
    CHECK(rows.evaluations[i].left_out == 4);
    CHECK(rows.evaluations[i].loss == Approx(expected.evaluations[i].loss).epsilon(1e-5));
    CHECK(rows.evaluations[i].top1_pct == expected.evaluations[i].top1_pct);
    CHECK(rows.evaluations[i].top5_pct == expected.evaluations[i].top5_pct);
    CHECK(expected.evaluations[i].left_out == 0);
  }
}

TEST_CASE("the samples left out are a part of an evaluation's record only if there are any") {
  EvaluationResult result{.loss = 1, .samples = 8, .left_out = 4};
  CHECK(to_json(result).at("left_out_samples") == 4);
  CHECK(evaluation_from(to_json(result)).left_out == 4);
  result.left_out = 0;
  CHECK_FALSE(to_json(result).contains("left_out_samples"));
  CHECK(evaluation_from(to_json(result)).left_out == 0);
}

TEST_CASE("an evaluation with too many bad samples ends the run, which lists them") {
  Rows rows;
  Trainer trainer(plan_evaluated_on(with_four_bad(), 3), {}, rows, never_stopped());
  CHECK_THROWS_WITH(trainer.run(), ContainsSubstring("data.max_bad_samples allows (3); 4 so far"));
  CHECK(trainer.bad_samples().evaluation.size() == 4);
  CHECK(rows.evaluations.empty());
}

TEST_CASE("after a resume each rank counts the bad samples that it found itself") {
  const BadSamples first{.training = {refused(2), refused(5)}, .evaluation = {refused(2)}},
      second{.training = {refused(5), refused(9)}};
  const ArchiveReader archive = stored({first, second});
  for (const auto& [rank, own] : {std::pair(int64_t{0}, first), std::pair(int64_t{1}, second)}) {
    const BadSamples loaded = load_bad_samples(archive, {.rank = rank, .ranks = 2});
    CHECK((loaded.training == own.training));
    CHECK((loaded.evaluation == own.evaluation));
    CHECK(loaded.earlier.empty());
  }
  CHECK(to_json(first).size() == 3);  // sample 2 of each set
  CHECK(to_json(first).back().at("set") == "evaluation");
}

TEST_CASE("with another number of ranks the counts of bad samples start at 0, and the first rank lists all") {
  ArchiveReader archive = stored(
      {{.training = {refused(2), refused(5)}, .evaluation = {refused(2)}}, {.training = {refused(5), refused(9)}}});
  for (int resumes = 0; resumes < 2; ++resumes) {  // and again with as many, when the list must not become a count
    std::vector<BadSamples> loaded;
    for (int64_t rank = 0; rank < 3; ++rank) loaded.push_back(load_bad_samples(archive, {.rank = rank, .ranks = 3}));
    for (const BadSamples& one : loaded) CHECK((one.training.empty() && one.evaluation.empty()));
    CHECK(to_json(loaded[0]).size() == 4);  // both ranks had found sample 5
    CHECK(to_json(loaded[1]).empty());
    archive = stored(loaded);
  }
}

TEST_CASE("with other evaluation data, the bad samples of the old data are listed but do not count") {
  BadSamples bad{.training = {refused(5)}, .evaluation = {refused(2)}};
  const Json before = to_json(bad);
  stop_counting_evaluation(bad);
  CHECK((bad.training == std::vector<RefusedSample>{refused(5)}));
  CHECK(bad.evaluation.empty());
  CHECK(to_json(bad) == before);
}

TEST_CASE("an older checkpoint of one rank has its bad samples") {
  const Json line = {{"sample", 2}, {"name", "probe 2"}, {"reason", "made to be bad"}};
  const ArchiveReader archive("test", {}, {{"ranks", 1}, {"bad_samples", Json::array({line})}});
  CHECK((load_bad_samples(archive, {.rank = 0, .ranks = 1}).training == std::vector<RefusedSample>{refused(2)}));
}

TEST_CASE("bad samples of a checkpoint that does not say who found them are listed") {
  const Json line = {{"sample", 2}, {"name", "probe 2"}, {"reason", "made to be bad"}};
  const ArchiveReader archive("test", {}, {{"ranks", 2}, {"bad_samples", Json::array({line})}});
  const BadSamples first = load_bad_samples(archive, {.rank = 0, .ranks = 2});
  CHECK(first.training.empty());
  CHECK((to_json(first) == to_json(BadSamples{.training = {refused(2)}})));
  CHECK(to_json(load_bad_samples(archive, {.rank = 1, .ranks = 2})).empty());
}
