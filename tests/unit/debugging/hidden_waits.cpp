#include "debugging/debug.h"
#include "debugging/wait_finder.h"
#include "device/differentiable.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/plans.h"
#include "support/planted_units.h"

#include <ATen/record_function.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::vector<HiddenWait> waits_of(const std::function<void()>& work, c10::Device device = at::kCPU) {
  const WaitFinder finder(device);
  work();
  return finder.found();
}

std::vector<HiddenWait> waits_of(const Plan& plan) {
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  REQUIRE(trainer.outcome().trace.hidden_waits);
  return *trainer.outcome().trace.hidden_waits;
}

Plan finding_plan(int64_t steps = 3) {
  Plan plan = small_plan(steps);
  add_debug(plan, {.find_syncs = true});
  return plan;
}

/// "aten::item forward layers.1 ×2"
std::string seen(const HiddenWait& wait) {
  return fmt::format("{} {} {} ×{}", wait.operation, wait.where, wait.unit, wait.calls);
}

/// Reads a value on the host after each update.
class ReadingAverage : public NoAverage {
 public:
  void update(ParameterStore& parameters, const at::Tensor&) override {
    parameters.parameters().front().second.detach().sum().item<float>();
  }
};

at::Tensor read_in_backward(const at::Tensor& x) {
  return differentiable(
      {x}, [&](std::vector<at::Tensor>&) { return x.detach().clone(); },
      [](const BackwardCall& call) {
        call.gradient.sum().item<float>();
        return std::vector<at::Tensor>{call.gradient};
      });
}

}  // namespace

TEST_CASE("a copy waits unless it is non-blocking and its host memory is page-locked") {
  for (const bool to_host : {true, false})
    for (const bool pinned : {true, false})
      for (const bool non_blocking : {true, false}) {
        INFO(to_host << pinned << non_blocking);
        CHECK(why_copying_waits({to_host, pinned, non_blocking}).empty() == (pinned && non_blocking));
      }
  CHECK(why_copying_waits({.to_host = true}) == "a blocking copy to the host");
  CHECK(why_copying_waits({.pinned = true}) == "a blocking copy, although the host memory is page-locked");
}

TEST_CASE("every operation that reads a value on the host is named once, by the name that was called") {
  const at::Tensor x = at::arange(6).to(at::kFloat), mask = x > 2, counts = at::ones({6}, at::kLong);
  const std::vector<std::pair<std::string, std::function<void()>>> reading{
      {"aten::item", [&] { x.sum().item<float>(); }}, {"aten::is_nonzero", [&] { x.sum().is_nonzero(); }},
      {"aten::nonzero", [&] { x.nonzero(); }},        {"aten::argwhere", [&] { x.argwhere(); }},
      {"aten::index", [&] { x.index({mask}); }},      {"aten::masked_select", [&] { x.masked_select(mask); }},
      {"aten::equal", [&] { at::equal(x, x); }},      {"aten::allclose", [&] { at::allclose(x, x); }},
      {"aten::bincount", [&] { counts.bincount(); }}, {"aten::repeat_interleave", [&] { x.repeat_interleave(counts); }},
  };
  for (const auto& [name, work] : reading) {
    INFO(name);
    const auto found = waits_of(work);
    REQUIRE(found.size() == 1);
    CHECK(found[0].operation == name);
    CHECK(found[0].calls == 1);
    CHECK(found[0].ms >= 0.0);
  }
  CHECK(waits_of([&] {
          x.mul(2).add_(x).copy_(x.clone());
          at::where(mask, x, -x).masked_fill(mask, 0).sum();
          x.index({counts});
          x.repeat_interleave(counts, 0, 6);
        }).empty());
}

TEST_CASE("a copy to another device is judged by the memory that it really uses") {
  const at::Tensor device = at::empty({4}, at::TensorOptions(at::kMeta));  // stands for a GPU's memory
  const auto found = waits_of([&] {
    device.clone().copy_(at::ones({4}));
    device.clone().copy_(at::ones({4}), /*non_blocking=*/true);
    at::ones({4}).to(at::kMeta);
  });
  REQUIRE(found.size() == 3);
  CHECK(found[0].operation == "aten::copy_");
  CHECK(found[0].why == "a blocking copy from pageable host memory");
  CHECK(found[1].why == why_copying_waits({.non_blocking = true}));
  CHECK(found[2].operation == "aten::to");
}

TEST_CASE("waits that libtorch reports are named by the operation in which they happened") {
  const auto report = [] { TORCH_WARN("called a synchronizing CUDA operation (a stand-in)"); };
  const auto found = waits_of(
      [&] {
        at::ones({}).item<float>();  // of the host's memory
        report();
        RECORD_FUNCTION("aten::unlisted", std::vector<c10::IValue>());
        report();
        const auto inner = [&] {
          RECORD_FUNCTION("aten::inner", std::vector<c10::IValue>());
          report();
        };
        inner();
      },
      at::kCUDA);
  REQUIRE(found.size() == 2);
  CHECK(seen(found[0]) == "a call outside any operation step  ×1");
  CHECK_FALSE(found[0].ms);
  CHECK(seen(found[1]) == "aten::unlisted step  ×1");
}

TEST_CASE("planted waits are found with phase, unit and number, and a clean plan has none") {
  CHECK(waits_of(finding_plan()).empty());
  Plan plan = finding_plan();
  plan.data.accumulation = 2;
  plant(plan, "layers.1", [](const at::Tensor& x) {
    x.detach().max().item<float>();
    return x;
  });
  plant(plan, "layers.0", read_in_backward);
  plan.average.fill("test", "", [](const BuildContext&) { return std::make_unique<ReadingAverage>(); });
  std::vector<std::string> found;
  for (const auto& wait : waits_of(plan)) found.push_back(seen(wait));
  CHECK(found == std::vector<std::string>{"aten::item forward layers.1 ×2", "aten::item backward layers.0 ×2",
                                          "aten::item update  ×1"});
}

TEST_CASE("a pageable copy in a unit is found there") {
  Plan plan = finding_plan();
  plant(plan, "layers.1", [](const at::Tensor& x) {
    x.detach().to(at::kMeta);
    return x;
  });
  const auto found = waits_of(plan);
  REQUIRE(found.size() == 1);
  CHECK(seen(found[0]) == "aten::to forward layers.1 ×1");
  CHECK_THAT(found[0].why, ContainsSubstring("pageable"));
}

TEST_CASE("the only step of a run is observed, and without the check nothing is looked for") {
  CHECK(waits_of(finding_plan(1)).empty());
  Plan plan = small_plan(2);
  add_debug(plan, {});
  CHECK(plan.profiler.is_plain());
  CHECK(plan.runner.is_plain());
  CHECK(plan.precision.is_plain());
  CHECK_FALSE(plan.detects_nonfinite);
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  CHECK_FALSE(trainer.outcome().trace.hidden_waits);
  CHECK(trainer.outcome().trace.calls([](const auto& each) { return each.range.starts_with("unit::"); }) == 0);
}

TEST_CASE("hidden waits as text and as JSON") {
  const std::vector<HiddenWait> waits{
      {.operation = "aten::item", .where = "forward", .unit = "fc", .why = "because", .calls = 2, .ms = 0.25},
      {.operation = "a call", .where = "step", .unit = "", .why = "so", .calls = 1, .ms = std::nullopt}};
  CHECK(hidden_waits_text({}, 2, false) == "hidden waits: none in step 2");
  CHECK(hidden_waits_text(waits, 2, false) ==
        "hidden waits in step 2\n"
        "  aten::item: 2 calls, 0.250 ms in forward of unit fc: because\n"
        "  a call: 1 call in step: so");
  CHECK_THAT(hidden_waits_text(waits, 2, true), ContainsSubstring("would wait on a GPU"));
  const Json json = hidden_waits_json(waits);
  CHECK(json[0] == Json{{"operation", "aten::item"},
                        {"where", "forward"},
                        {"unit", "fc"},
                        {"calls", 2},
                        {"ms", 0.25},
                        {"why", "because"}});
  CHECK(json[1].at("unit").is_null());
  CHECK(json[1].at("ms").is_null());
}
