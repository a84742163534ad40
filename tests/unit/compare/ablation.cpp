#include "compare/ablation.h"

#include "base/files/files.h"
#include "compare/ceilings.h"
#include "compare/output/ablation_report.h"
#include "compare/shares.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <cmath>

using namespace trainopt;

namespace {

Gain gain(double ratio) {
  Gain measured;
  measured.ratio = ratio;
  measured.interval = Interval{ratio * 0.99, ratio * 1.01};
  measured.pairs = {std::log(ratio) + 0.001, std::log(ratio) - 0.001};
  measured.standard_error = 0.001;
  measured.verdict = judge(*measured.interval, 0.01);
  return measured;
}

SwitchRow row(const char* name, Gain alone, Gain in_stack) {
  SwitchRow result;
  result.name = name;
  result.alone = std::move(alone);
  result.in_stack = std::move(in_stack);
  return result;
}

}  // namespace

TEST_CASE("shares are Shapley values if switches interact in pairs, and the rest is what they leave unexplained") {
  // log gains: a 0.2, b 0.1, c -0.05; a and b help each other by 0.06. Shapley: each interaction is halved.
  Ablation ablation;
  ablation.switches = {row("a", gain(std::exp(0.2)), gain(std::exp(0.26))),
                       row("b", gain(std::exp(0.1)), gain(std::exp(0.16))),
                       row("c", gain(std::exp(-0.05)), gain(std::exp(-0.05))), row("d", {}, {})};
  ablation.total = gain(std::exp(0.31));
  attribute(ablation, 2);
  CHECK(ablation.switches[0].share->ratio == Approx(std::exp(0.23)));
  CHECK(ablation.switches[1].share->ratio == Approx(std::exp(0.13)));
  CHECK(ablation.switches[2].share->ratio == Approx(std::exp(-0.05)));
  CHECK_FALSE(ablation.switches[3].share.has_value());
  CHECK(ablation.rest->ratio == Approx(1));
  // Standard errors: of the mean of two cells, half the root sum of squares; of the rest, that of the total and all
  // three shares combined.
  CHECK(ablation.switches[0].share->interval->high == Approx(std::exp(0.23 + 2 * 0.001 * std::sqrt(2) / 2)));
  CHECK(ablation.rest->interval->high == Approx(std::exp(2 * 0.001 * std::sqrt(1 + 3 * 0.5))));

  ablation.total = gain(std::exp(0.40));  // more than pairwise interactions explain
  attribute(ablation, 2);
  CHECK(ablation.switches[0].share->ratio == Approx(std::exp(0.23)));
  CHECK(ablation.rest->ratio == Approx(std::exp(0.09)));
}

TEST_CASE("a switch measured in one way only has no share, and counts in the rest") {
  Ablation ablation;
  ablation.switches = {row("only_alone", gain(std::exp(0.5)), {}), row("only_in_stack", {}, gain(std::exp(0.3))),
                       row("both", gain(std::exp(0.1)), gain(std::exp(0.2)))};
  ablation.total = gain(std::exp(0.9));
  attribute(ablation, 2);
  CHECK_FALSE(ablation.switches[0].share.has_value());
  CHECK_FALSE(ablation.switches[1].share.has_value());
  CHECK(ablation.switches[2].share->ratio == Approx(std::exp(0.15)));
  CHECK(ablation.rest->ratio == Approx(std::exp(0.9 - 0.15)));
  const std::string text = ablation_text(ablation, false), csv = ablation_csv(ablation);
  CHECK(text.find("a switch has none unless both were measured") != std::string::npos);
  CHECK(text.find("\n  both ") < text.find("\n  only_alone "));  // those without a share come last
  // alone 1.64872, then neither in_stack nor share, each with an empty interval.
  CHECK(csv.find("\nonly_alone,,1.64872,1.63223,1.66521,,,,,,,") != std::string::npos);
  CHECK(csv.find("\nonly_in_stack,,,,,1.34986,1.33636,1.36336,,,,") != std::string::npos);
}

TEST_CASE("switches.csv quotes a switch that is a map") {
  Ablation ablation;
  ablation.switches = {row("amp", gain(1.4), gain(1.5))};
  ablation.switches[0].requested = "{dtype: \"bfloat16\", init_scale: 65536}";
  ablation.switches[0].interaction = Interaction{.with = "a, b", .ratio = 1.1, .interval = {}};
  const std::string csv = ablation_csv(ablation);
  CHECK(csv.find("\namp,\"{dtype: \"\"bfloat16\"\", init_scale: 65536}\",1.4,") != std::string::npos);
  CHECK(csv.find(",\"a, b\",1.1,") != std::string::npos);
}

TEST_CASE("all cells of an ablation are judged together") {
  Ablation ablation;
  const auto pairs = [](double first, double second) {
    Gain measured;
    measured.ratio = std::exp((first + second) / 2);
    measured.pairs = {first, second};
    return measured;
  };
  ablation.switches = {row("amp", pairs(0.30, 0.31), pairs(0.29, 0.30)),
                       row("fused", pairs(0.02, 0.00), pairs(-0.01, 0.015)), row("lonely", pairs(0, 0), {})};
  ablation.switches[2].alone.pairs = {0.5};
  ablation.total = pairs(0.31, 0.33);
  ablation.seconds = 100;
  judge_gains(ablation);
  CHECK(ablation.total.verdict == Verdict::pays);
  CHECK(ablation.switches[0].alone.verdict == Verdict::pays);
  CHECK(ablation.switches[1].alone.verdict == Verdict::inconclusive);
  CHECK(ablation.switches[1].alone.interval->contains(1));
  CHECK(ablation.switches[2].alone.verdict == Verdict::inconclusive);  // one pair has no variance
  CHECK_FALSE(ablation.switches[2].alone.interval.has_value());
  CHECK(*ablation.pairs_needed > 2);
  // 11 pairs took 100 s; seven cells, including the one not measured, would need `pairs_needed` pairs each.
  CHECK(*ablation.budget_needed_s == Approx(100.0 / 11 * 7 * static_cast<double>(*ablation.pairs_needed)));
  const std::string text = ablation_text(ablation, false);
  CHECK(text.find("one pair") != std::string::npos);
  CHECK(text.find("pairs of processes have a standard deviation of") != std::string::npos);
}

TEST_CASE("the inverse of a gain inverts ratio, interval and verdict") {
  const Gain slower = gain(0.8).inverse();
  CHECK(*slower.ratio == Approx(1.25));
  CHECK(slower.interval->low < 1.25);
  CHECK(slower.interval->high > 1.25);
  CHECK(slower.verdict == Verdict::pays);
}

TEST_CASE("sets of switches become recipes, and a contradictory set is not possible") {
  const TemporaryFolder folder;
  write_file(folder / "recipe.yaml",
             "model: {name: mlp}\ndata: {num_workers: 2, pin_memory: true, non_blocking: true, size: "
             "64}\noptimizations: {amp: true, fused_optimizer: true}\n");
  AblationRequest request;
  request.sources.files.push_back(folder / "recipe.yaml");
  const SwitchSet all{"num_workers", "pin_memory", "non_blocking", "amp", "fused_optimizer"};
  const Observer observer;
  LocalArms factory({.machine = detect_machine()});
  const AblationBench bench(request, all, factory, observer);
  const Recipe plain = bench.recipe({});
  CHECK_FALSE(plain.optimizations.amp.on);
  CHECK(plain.data.num_workers == 0);
  CHECK(bench.recipe({"amp"}).optimizations.amp.on);
  CHECK_FALSE(bench.recipe({"amp"}).optimizations.fused_optimizer);
  CHECK(bench.possible(all));
  CHECK(bench.possible({"pin_memory", "non_blocking"}));
  CHECK_FALSE(bench.possible({"non_blocking"}));  // needs pin_memory
}

TEST_CASE("communication is a cost only with several ranks") {
  CHECK((ceilings_of(1) == std::vector{Ceiling::data, Ceiling::optimizer, Ceiling::logging}));
  CHECK((ceilings_of(2).back() == Ceiling::communication));
  CHECK(word_of(Ceiling::communication) == "communication");
}

TEST_CASE("without communication nothing is learned, because the gradients are not the job's") {
  ArmSpec spec;
  const Machine machine = detect_machine();
  CHECK(base_learning_rate(arm_plan(spec, machine).optimizer_config) > 0);
  spec.without = Ceiling::communication;
  CHECK(base_learning_rate(arm_plan(spec, machine).optimizer_config) == 0);
}

TEST_CASE("an arm's specification arrives unchanged in another process") {
  ArmSpec spec;
  spec.without = Ceiling::communication;
  spec.batch_seed = 7;
  spec.perturbed = 2;
  spec.faults = {"straggle@40:1"};
  spec.rendezvous = ArmRendezvous{.host = "first", .port = 29500, .job = "arm-1"};
  const ArmSpec arrived = arm_spec_from(parse_json(json_text(to_json(spec))));
  CHECK(arrived.without == Ceiling::communication);
  CHECK(arrived.batch_seed == 7);
  CHECK(arrived.perturbed == 2);
  CHECK(arrived.faults == std::vector<std::string>{"straggle@40:1"});
  REQUIRE(arrived.rendezvous.has_value());
  CHECK(arrived.rendezvous->host == "first");
  CHECK(arrived.rendezvous->port == 29500);
  CHECK(arrived.rendezvous->job == "arm-1");
  const ArmSpec plain = arm_spec_from(to_json(ArmSpec{}));
  CHECK_FALSE((plain.without || plain.batch_seed || plain.perturbed || plain.rendezvous));
}

TEST_CASE("every form of the report has every switch, and a failed cell has its reason") {
  Ablation ablation;
  Gain refused;
  refused.reason = "out of memory; lower data.batch_size";
  ablation.switches = {row("amp", gain(1.4), gain(1.5)), row("batch_size", refused, refused), row("tf32", {}, {})};
  ablation.switches[0].numbers_agree = false;
  ablation.switches[0].numbers = "the loss curves are 9 % apart";
  ablation.switches[2].no_effect = "TF32 is a format of NVIDIA GPUs";
  ablation.total = gain(1.45);
  ablation.ceilings = {{Ceiling::data, gain(1.07)}, {Ceiling::communication, gain(1.21)}};
  attribute(ablation, 2);
  for (const std::string& text :
       {ablation_text(ablation, false), ablation_markdown(ablation), ablation_csv(ablation), to_json(ablation).dump()})
    for (const char* name : {"amp", "batch_size", "tf32"}) CHECK(text.find(name) != std::string::npos);
  const std::string text = ablation_text(ablation, false);
  CHECK(text.find("out of memory") != std::string::npos);
  CHECK(text.find("DIFFER") != std::string::npos);
  CHECK(text.find("even free loading would give +7.0 %") != std::string::npos);
  CHECK(text.find("even free communication would give +21.0 %") != std::string::npos);
  CHECK(to_json(ablation).at("ceilings").at(1).at("without") == "communication");
  CHECK(ablation_text(ablation, true).find("\x1b[31mDIFFER") != std::string::npos);
}
