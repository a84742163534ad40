#include "compare/numbers/numerics.h"

#include "compare/arms/local_arm.h"
#include "compare/ceilings.h"
#include "compare/comparison.h"
#include "compare/numbers/numerics_output.h"
#include "device/tensor.h"
#include "optimizations/amp/amp.h"
#include "support/catch.h"
#include "support/plans.h"
#include "support/small_gpt2.h"
#include "support/temporary_folder.h"
#include "support/turned_on.h"
#include "unit/compare/first_turns.h"
#include "unit/compare/planted_faults.h"

#include <fmt/ranges.h>

#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kSteps = 10;

Plan job() {
  Plan plan = small_plan(1);
  plan.steps.reset();
  plan.model.config.dropout = 0;
  plan.data.accumulation = 4;
  plan.data.batch_size = 4;
  return plan;
}

/// Compares the job (A) with `b`.
Numerics against(const Plan& b, Yardstick yardstick = Yardstick::perturbed) {
  FirstTurns turns(kSteps);
  const auto twin_of = yardstick == Yardstick::perturbed ? perturbed : reseeded;
  const auto twins = turns.train_twins([&](int64_t number) { return twin_of(job(), number); });
  return compare_numbers(turns.train(job()), turns.train(b), twins, yardstick);
}

/// A bug that a widely used trainer had for years: each micro-batch counts as if it were the full step.
class SumOfMeans : public Precision {
 public:
  SumOfMeans(std::unique_ptr<Precision> inner, double factor) : inner_(std::move(inner)), factor_(factor) {}
  AutocastGuard autocast() override { return inner_->autocast(); }
  void backward(const at::Tensor& loss) override { inner_->backward(loss * factor_); }
  at::Tensor unscale(Gradients& gradients) override { return inner_->unscale(gradients); }
  void update(const at::Tensor& overflow, const at::Tensor& rolled_back) override {
    inner_->update(overflow, rolled_back);
  }
  at::Tensor loss_scale() const override { return inner_->loss_scale(); }
  void save(ArchiveWriter& archive) const override { inner_->save(archive); }
  void load(const ArchiveReader& archive) override { inner_->load(archive); }

 private:
  std::unique_ptr<Precision> inner_;
  double factor_;
};

}  // namespace

TEST_CASE("the same job agrees bit for bit, and its twin gives the tolerances") {
  for (const Yardstick yardstick : {Yardstick::perturbed, Yardstick::reseeded}) {
    const Numerics same = against(job(), yardstick);
    CHECK(same.agree());
    CHECK(same.loss.value == 0);
    CHECK(same.update_norm_ratio == 1);
    CHECK(same.loss.tolerance > 0);
    CHECK(same.losses_twin != same.losses_a);
    CHECK(same.steps == kSteps);
    CHECK(same.gradients.tensors == (yardstick == Yardstick::perturbed ? 4 : 0));
    const Json json = to_json(same);
    CHECK(json.at("agree") == true);
    CHECK(json.at("not_seen").size() >= 2);
    CHECK(to_json(numerics_from(json)) == json);
  }
}

TEST_CASE("numerics in the format without a perturbed twin read back with the reseeded yardstick") {
  Json json = to_json(against(job(), Yardstick::reseeded));
  json.at("losses")["reseeded"] = json.at("losses").at("twin");
  json.at("losses").erase("twin");
  for (const char* key : {"yardstick", "worst_loss_distance", "update_direction", "tensors"}) json.erase(key);
  const Numerics older = numerics_from(json);
  CHECK(older.yardstick == Yardstick::reseeded);
  CHECK(older.agree());
  CHECK(older.losses_twin.size() == static_cast<size_t>(kSteps));
}

TEST_CASE("perturbed weights are off by 2^-9 in either direction, reproducibly, and buffers are unchanged") {
  const auto made = [] { return small_resnet({}, {.height = 8, .width = 8}, at::kCPU, /*seed=*/5, {}); };
  const Model before = made();
  Model once = made(), again = made(), other = made();
  perturb_weights(once, 5);
  perturb_weights(again, 5);
  perturb_weights(other, 6);
  int64_t up = 0, all = 0, same_sign = 0;
  for (size_t i = 0; i < before.parameters().size(); ++i) {
    const auto [name, old] = before.parameters()[i];
    const at::Tensor now = once.parameters()[i].second;
    CHECK(at::equal(now, again.parameters()[i].second));
    const at::Tensor larger = now.abs() > old.abs();
    CHECK(at::allclose((now - old).abs(), old.abs() * kPerturbation, 1e-3, 1e-9));
    up += larger.sum().item<int64_t>();
    same_sign += (larger == (other.parameters()[i].second.abs() > old.abs())).sum().item<int64_t>();
    all += old.numel();
  }
  // About half; zeros (biases) count as not larger. With 5000 elements the standard deviation is 0.7 %.
  CHECK(static_cast<double>(up) / static_cast<double>(all) == Approx(0.5).margin(0.04));
  CHECK(static_cast<double>(same_sign) / static_cast<double>(all) == Approx(0.5).margin(0.04));
  for (size_t i = 0; i < before.buffers().size(); ++i)
    CHECK(at::equal(before.buffers()[i].second, once.buffers()[i].second));
}

TEST_CASE("a perturbation changes every weight that is bfloat16") {
  const auto made = [] { return small_resnet({}, {.height = 8, .width = 8}, at::kCPU, /*seed=*/5, {}); };
  Model before = made(), after = made();
  std::set<std::string> filters;
  for (const auto& [name, parameter] : before.parameters())
    if (parameter.dim() == 4) filters.insert(name);
  before.to_type(filters, at::kBFloat16);
  after.to_type(filters, at::kBFloat16);
  perturb_weights(after, 5);
  for (size_t i = 0; i < before.parameters().size(); ++i) {
    const auto [name, old] = before.parameters()[i];
    if (filters.contains(name)) CHECK(after.parameters()[i].second.ne(old).all().item<bool>());
  }
}

TEST_CASE("the yardstick is reseeded if recipes differ in random draws or micro-batches") {
  const Recipe plain;
  CHECK(yardstick(plain, plain) == Yardstick::perturbed);
  const auto yardstick_after = [&](const std::function<void(Recipe&)>& change) {
    Recipe b;
    change(b);
    CHECK(yardstick(b, plain) == yardstick(plain, b));
    return yardstick(plain, b);
  };
  CHECK(yardstick_after([](Recipe& r) { r.seed = 1; }) == Yardstick::reseeded);
  CHECK(yardstick_after([](Recipe& r) { r.model.dropout = 0.1; }) == Yardstick::reseeded);
  CHECK(yardstick_after([](Recipe& r) { r.data.transforms = {RandomHorizontalFlipConfig{}}; }) == Yardstick::reseeded);
  CHECK(yardstick_after([](Recipe& r) { r.data.batch_size = 16; }) == Yardstick::reseeded);
  CHECK(yardstick_after([](Recipe& r) { r.train.gradient_accumulation_steps = 2; }) == Yardstick::reseeded);
  CHECK(yardstick_after([](Recipe& r) { r.data.num_workers = 2; }) == Yardstick::perturbed);
  CHECK(yardstick_after([](Recipe& r) { std::get<SgdConfig>(r.optimizer).lr = 1; }) == Yardstick::perturbed);
  for (const CatalogueEntry& entry : catalogue()) {
    INFO(entry.key);
    CHECK(yardstick(plain, turned_on(plain, entry)) ==
          (entry.info.other_draws ? Yardstick::reseeded : Yardstick::perturbed));
  }
}

TEST_CASE("a gradient that is zero only in B is a disagreement that names the tensor") {
  Plan wrong = job();
  edited_gradients("", [](const std::string& name, at::Tensor& gradient) {
    if (name == "layers.0.weight") gradient.zero_();
  }).make(wrong);
  const Numerics numerics = against(wrong);
  CHECK_FALSE(numerics.agree());
  CHECK(numerics.gradients.beyond == 1);
  CHECK(numerics.gradients.worst == "layers.0.weight");
  CHECK(numerics.disagreements().front() ==
        "the first gradient of layers.0.weight is zero in B and not in A; 1 of 4 tensors disagree");
}

TEST_CASE("bfloat16 agrees without being identical") {
  Plan plan = job();
  amp::apply(plan, {});
  const Numerics numerics = against(plan);
  CHECK(numerics.agree());
  CHECK(numerics.loss.value > 0);
  CHECK(numerics.loss.value < numerics.loss.tolerance);
}

TEST_CASE(
    "gradients summed over micro-batches instead of averaged are caught, even with an optimizer that hides them") {
  for (const bool adam : {false, true}) {
    Plan right = job(), wrong = job();
    if (adam) {
      // Adam normalises by the gradient's magnitude: neither the losses nor the updates show the bug.
      const auto with_adam = [](Plan plan) {
        Plan other(plan.machine, plan.device, AdamConfig{});
        other.seed = plan.seed;
        other.data = plan.data;
        other.model = plan.model;
        return other;
      };
      right = with_adam(right);
      wrong = with_adam(wrong);
    }
    wrong.precision.wrap("bug", "", [](const BuildContext&, std::unique_ptr<Precision> inner) {
      return std::make_unique<SumOfMeans>(std::move(inner), 4);
    });
    FirstTurns turns(kSteps);
    const auto twins = turns.train_twins([&](int64_t number) { return perturbed(right, number); });
    const Numerics numerics = compare_numbers(turns.train(right), turns.train(wrong), twins, Yardstick::perturbed);
    CHECK_FALSE(numerics.agree());
    CHECK(numerics.gradient_norm_ratio == Approx(4).epsilon(0.01));
    CHECK_FALSE(numerics.gradient_norm.within_tolerance());
    CHECK_FALSE(numerics.disagreements().empty());
  }
}

TEST_CASE("an overflow in the first step is not comparable") {
  Plan overflowing = job();
  overflowing.precision.wrap("bug", "", [](const BuildContext&, std::unique_ptr<Precision> inner) {
    return std::make_unique<SumOfMeans>(std::move(inner), HUGE_VAL);
  });
  FirstTurns turns(1);
  const FirstSteps a = turns.train(job()), overflowed = turns.train(overflowing);
  const auto twins = turns.train_twins([](int64_t number) { return perturbed(job(), number); });
  for (const auto& numerics : {compare_numbers(a, overflowed, twins, Yardstick::perturbed),
                               compare_numbers(overflowed, a, twins, Yardstick::perturbed)})
    CHECK(numerics.not_comparable.find("overflowed") != std::string::npos);
}

TEST_CASE("an arm without updates is a disagreement") {
  Plan still = job();
  still.optimizer.wrap("ceiling", "",
                       [](const BuildContext&, std::unique_ptr<Optimizer>) { return std::make_unique<NoUpdates>(); });
  const Numerics nothing = against(still);
  CHECK_FALSE(nothing.agree());
  CHECK(std::isfinite(to_json(nothing).at("update_norm").at("value").get<double>()));  // so it reads back
}

TEST_CASE("with a skipped step among the first ones, numbers are not compared") {
  FirstTurns turns(1);
  const FirstSteps a = turns.train(job());
  const auto twins = turns.train_twins([](int64_t number) { return perturbed(job(), number); });
  Turn skipped = a.turn;
  skipped.overflows = 1;
  for (const auto& numerics : {compare_numbers(a, {skipped, a.folder}, twins, Yardstick::perturbed),
                               compare_numbers({skipped, a.folder}, a, twins, Yardstick::perturbed)})
    CHECK(numerics.not_comparable.find("was skipped") != std::string::npos);
}

TEST_CASE("with too few twins, numbers are not compared, and a larger budget is named") {
  FirstTurns turns(1);
  const FirstSteps a = turns.train(job());
  Twins twins{.first_turns = {{a.turn, a.folder}, {a.turn, a.folder}}, .wanted = 4};
  const WarmArm arm{.arm = std::make_shared<LocalArm>(job(), a.folder), .first_steps = a.turn};
  CHECK(compare_with_twins(twins, arm, arm).not_comparable ==
        "only 2 of the 4 twins of A that show how far rounding goes were trained in the time for them; a larger "
        "--budget compares the numbers");
}

TEST_CASE("the first gradients are those of the same weights, which change from the last of them on") {
  const TemporaryFolder folder;
  LocalArm arm(job(), folder / "a");
  const auto largest_change = [&] {
    double largest = 0;
    for (const auto& [name, update] : load_tensors(update_file(folder / "a")))
      largest = std::max(largest, update.abs().max().item<double>());
    return largest;
  };
  REQUIRE(gradient_steps(job()) == std::vector<int64_t>{1, 3, 4, 5});
  arm.turn(4);
  CHECK(largest_change() == 0);
  arm.turn(1);
  CHECK(largest_change() > 0);
  arm.turn(1);
  CHECK(pair_gradients(folder / "a", folder / "a")->front().steps == 4);
  Plan large = job();
  large.model.parameters = 100'000'000;
  CHECK(gradient_steps(large) == std::vector<int64_t>{1});
}

TEST_CASE("first steps in two turns are those of one turn") {
  const TemporaryFolder folder;
  LocalArm once(job(), folder / "once"), twice(job(), folder / "twice");
  const Turn whole = once.turn(kSteps), first = twice.turn(2), all = joined(first, twice.turn(kSteps - 2));
  CHECK(all.steps == whole.steps);
  CHECK(all.losses == whole.losses);
  CHECK(all.samples == whole.samples);
  CHECK(all.step_ms.size() == whole.step_ms.size());
  const std::vector<std::function<std::filesystem::path(const std::filesystem::path&)>> files{
      update_file, [](const auto& arm) { return gradients_file(arm, 1); },
      [](const auto& arm) { return gradients_file(arm, 4); }};
  for (const auto& file : files) {
    const NamedTensors a = load_tensors(file(folder / "once")), b = load_tensors(file(folder / "twice"));
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i].second, b[i].second));
  }
}

TEST_CASE("amp with AdamW agrees in a language model, whose key biases have gradients of rounding alone") {
  Recipe recipe;
  recipe.device = "cpu";
  use_gpt2(recipe);
  recipe.data.batch_size = 8;
  recipe.optimizer = AdamWConfig{};
  const auto plan_of = [&](bool amp) {
    recipe.optimizations.amp.on = amp;
    Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
    plan.steps.reset();
    return plan;
  };
  FirstTurns turns(kSteps);
  const auto twins = turns.train_twins([&](int64_t number) { return perturbed(plan_of(false), number); });
  CHECK_FALSE(twins[0].turn.losses == twins[1].turn.losses);
  const Numerics numerics =
      compare_numbers(turns.train(plan_of(false)), turns.train(plan_of(true)), twins, Yardstick::perturbed);
  CAPTURE(fmt::format("{}", fmt::join(numerics.disagreements(), "; ")));
  CHECK(numerics.agree());
}

/// Hands every step's gradients, as they are after the inner precision, to `see`.
class SeenGradients : public WrappedPrecision {
 public:
  using See = std::function<void(const std::vector<at::Tensor>&)>;
  SeenGradients(std::unique_ptr<Precision> inner, See see) : WrappedPrecision(std::move(inner)), see_(std::move(see)) {}
  at::Tensor unscale(Gradients& gradients) override {
    at::Tensor overflow = WrappedPrecision::unscale(gradients);
    std::vector<at::Tensor> copies;
    for (const at::Tensor& gradient : gradients.tensors()) copies.push_back(gradient.detach().clone());
    see_(copies);
    return overflow;
  }

 private:
  See see_;
};

TEST_CASE("a twin perturbs the gradients of the steps whose update is compared, and does no more afterwards") {
  std::vector<at::Tensor> before;
  std::vector<bool> differ;
  const auto see = [](Plan& plan, SeenGradients::See what) {
    plan.precision.wrap("test", "", [what](const BuildContext&, std::unique_ptr<Precision> inner) {
      return std::make_unique<SeenGradients>(std::move(inner), what);
    });
  };
  Plan plan = job();
  see(plan, [&](const auto& gradients) { before = gradients; });
  begin_perturbed(plan, 0);
  see(plan, [&](const auto& gradients) {
    bool all = true;
    for (size_t i = 0; i < gradients.size(); ++i) all = all && !at::equal(gradients[i], before[i]);
    differ.push_back(all);
  });
  FirstTurns turns(kSteps + 2);
  turns.train(plan);
  REQUIRE(differ.size() == static_cast<size_t>(kSteps + 2));
  for (size_t step = 0; step < differ.size(); ++step) CHECK(differ[step] == (step < 10));
}

TEST_CASE("what an arm does after its facts are read is not part of its first steps") {
  const TemporaryFolder folder;
  LocalArm warm(job(), folder / "warm"), continued(job(), folder / "continued");
  warm.turn(6);
  continued.turn(6);
  continued.facts();
  continued.turn(3);
  const NamedTensors a = load_tensors(update_file(folder / "warm")),
                     b = load_tensors(update_file(folder / "continued"));
  for (size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i].second, b[i].second));
}

TEST_CASE("arms with different models are not compared") {
  Plan plan = job();
  plan.model.config.hidden = {32};
  const Numerics numerics = against(plan);
  CHECK(numerics.not_comparable == "the arms train different models");
  CHECK(to_json(numerics).at("agree").is_null());
}

TEST_CASE("a sabotaged switch has a receipt that says it had no effect") {
  const TemporaryFolder folder;
  Plan plan = job();
  const Outcome outcome = amp::apply(plan, {});
  plan.switches.push_back({"amp", "true", outcome});
  plan.precision.wrap("sabotage", "", [](const BuildContext&, std::unique_ptr<Precision>) {
    return std::make_unique<FullPrecision>();
  });
  LocalArm arm(plan, folder / "a");
  arm.turn(3);
  const Json receipt = arm.facts().receipts.at("amp");
  CHECK(receipt.at("effective") == false);
  CHECK_FALSE(receipt.at("reason").get<std::string>().empty());
}
