#include "train/plan.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("filling a slot twice is an error that names both optimizations") {
  Plan plan(Machine{}, at::kCPU, SgdConfig{});
  const auto make = [](const BuildContext&) { return std::make_unique<FullPrecision>(); };
  plan.precision.fill("amp", "bfloat16", make);
  CHECK(plan.precision.describe() == "bfloat16 (amp)");
  CHECK_THROWS_WITH(plan.precision.fill("fp8", "float8", make),
                    ContainsSubstring("amp and fp8 both replace the precision"));
}

TEST_CASE("wrappers are described and built in order, the last one outermost") {
  std::vector<std::string> built;
  Slot<std::string> slot("text", "plain", [&](const BuildContext&) { return std::make_unique<std::string>("x"); });
  for (const std::string name : {"a", "b"})
    slot.wrap(name, "wrapped", [name](const BuildContext&, std::unique_ptr<std::string> inner) {
      return std::make_unique<std::string>(name + "(" + *inner + ")");
    });
  const Plan plan(Machine{}, at::kCPU, SgdConfig{});
  CHECK(*slot.build({.plan = plan, .device = at::kCPU, .run_dir = {}}) == "b(a(x))");
  CHECK(slot.describe() == "plain, wrapped (a), wrapped (b)");
}
