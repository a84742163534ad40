#include "compare/numerics.h"

#include "compare/ceiling_parts.h"
#include "compare/comparison.h"
#include "compare/local_arm.h"
#include "optimizations/amp/amp.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/plans.h"

#include <ATen/ATen.h>

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

/// Of the job against `b`, with a twin that has other batches.
Numerics against(const Plan& b) {
  const TemporaryFolder folder;
  Plan other_batches = job();
  other_batches.data.seed += 1;
  const auto first_turn = [&](const Plan& plan, const char* name) {
    return LocalArm(plan, folder / name).turn(kSteps);
  };
  const Turn of_a = first_turn(job(), "a"), of_b = first_turn(b, "b"), of_twin = first_turn(other_batches, "twin");
  return compare_numbers({of_a, folder / "a"}, {of_b, folder / "b"}, {of_twin, folder / "twin"});
}

/// The bug that a widely used trainer had for years: each micro-batch counts as if it were the whole step.
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

TEST_CASE("the same job agrees to the bit, another seed is what tolerances are made of") {
  const Numerics same = against(job());
  CHECK(same.agree());
  CHECK(same.loss.value == 0);
  CHECK(same.update_norm_ratio == 1);
  CHECK(same.loss.tolerance > 0);
  CHECK(same.steps == kSteps);
  CHECK(to_json(same).at("agree") == true);
}

TEST_CASE("bfloat16 agrees and is not the same") {
  Plan plan = job();
  amp::apply(plan, {});
  const Numerics numerics = against(plan);
  CHECK(numerics.agree());
  CHECK(numerics.loss.value > 0);
  CHECK(numerics.loss.value < numerics.loss.tolerance);
}

TEST_CASE(
    "gradients summed over micro-batches instead of averaged are caught, also under an optimizer that hides them") {
  for (const bool adam : {false, true}) {
    Plan right = job(), wrong = job();
    if (adam) {
      // Adam divides by the gradient's size: neither the losses nor the updates show the mistake.
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
    const TemporaryFolder folder;
    Plan twin = right;
    twin.data.seed += 1;
    const Turn of_a = LocalArm(right, folder / "a").turn(kSteps), of_b = LocalArm(wrong, folder / "b").turn(kSteps),
               of_twin = LocalArm(twin, folder / "twin").turn(kSteps);
    const Numerics numerics = compare_numbers({of_a, folder / "a"}, {of_b, folder / "b"}, {of_twin, folder / "twin"});
    CHECK_FALSE(numerics.agree());
    CHECK(numerics.gradient_norm_ratio == Approx(4).epsilon(0.01));
    CHECK_FALSE(numerics.gradient_norm.within());
    CHECK_FALSE(numerics.disagreements().empty());
  }
}

TEST_CASE("an overflow in the first step is no disagreement, an arm that changes nothing is one") {
  const TemporaryFolder folder;
  Plan overflowing = job(), still = job(), twin = job();
  twin.data.seed += 1;
  overflowing.precision.wrap("bug", "", [](const BuildContext&, std::unique_ptr<Precision> inner) {
    return std::make_unique<SumOfMeans>(std::move(inner), HUGE_VAL);
  });
  still.optimizer.wrap("ceiling", "",
                       [](const BuildContext&, std::unique_ptr<Optimizer>) { return std::make_unique<NoUpdates>(); });
  const Turn of_a = LocalArm(job(), folder / "a").turn(1), of_twin = LocalArm(twin, folder / "twin").turn(1);
  const Turn of_still = LocalArm(still, folder / "still").turn(1),
             of_overflow = LocalArm(overflowing, folder / "overflow").turn(1);
  const FirstSteps a{of_a, folder / "a"}, reseeded{of_twin, folder / "twin"};
  for (const auto& numerics : {compare_numbers(a, {of_overflow, folder / "overflow"}, reseeded),
                               compare_numbers({of_overflow, folder / "overflow"}, a, reseeded)})
    CHECK(numerics.not_comparable.find("overflowed") != std::string::npos);
  const Numerics nothing = compare_numbers(a, {of_still, folder / "still"}, reseeded);
  CHECK_FALSE(nothing.agree());
  CHECK(std::isfinite(to_json(nothing).at("update_norm").at("value").get<double>()));  // it reads back
}

TEST_CASE("other models are not compared") {
  Plan plan = job();
  plan.model.config.hidden = {32};
  const Numerics numerics = against(plan);
  CHECK(numerics.not_comparable == "the arms train different models");
  CHECK(to_json(numerics).at("agree").is_null());
}

TEST_CASE("a switch that was made ineffective has a receipt that says so") {
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
