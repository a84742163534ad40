#include "model/imported/passed_values.h"

#include "base/error.h"
#include "support/catch.h"

#include <algorithm>

using namespace trainopt;

namespace {

ProgramSource sides() {
  ModelConfig config;
  config.name = ModelKind::exported;
  config.path = std::string(MODEL_FILES) + "/sides.pt2";
  return ProgramSource(config);
}

/// Every value that a node makes, as if the unit before made it and the next one used it.
PassedFrom all_of(const ProgramSource& source) {
  PassedFrom from;
  for (const ProgramNode& node : source.graph.nodes) {
    from.nodes.push_back(&node);
    for_each_output(node,
                    [&](int64_t value) { from.uses.push_back({.value = value, .made_in = 0, .last_used_in = 1}); });
  }
  from.uses.push_back({.value = source.division.input.index, .made_in = 0, .last_used_in = 1});
  return from;
}

}  // namespace

TEST_CASE("a stage knows the input, numbers that follow from its sizes, and the sizes and types of tensors") {
  const ProgramSource source = sides();
  const auto passed = passed_values(source, {"first", "second"}, all_of(source), {})(1, {3, 8}, true);
  const auto count = [&](const auto& is) { return std::ranges::count_if(passed, is); };
  CHECK(count([](const PassedValue& each) { return each.is_input; }) == 1);
  CHECK(count([](const PassedValue& each) { return each.number.isInt() && each.number.toInt() == 3 * 8; }) >= 1);
  CHECK(count([](const PassedValue& each) {
          return each.type == at::kBool && each.sizes == std::vector<int64_t>{3, 8, 1};
        }) >= 1);
  CHECK(count([](const PassedValue& each) {
          return each.type == at::kDouble && each.sizes == std::vector<int64_t>{8, 1};
        }) >= 1);
  CHECK(passed_values(source, {"first", "second"}, all_of(source), {})(1, {3, 8}, false).empty());
  CHECK(passed_values(source, {"first", "second"}, all_of(source), {})(2, {3, 8}, true).empty());
}

TEST_CASE("a stage cannot begin before a tensor whose sizes are computed") {
  ProgramSource source = sides();
  const PassedFrom all = all_of(source);
  for (auto& value : source.graph.values)
    if (value.tensor) value.tensor->sizes = {"Symbol('u0', integer=True) + Unknown('v')"};
  CHECK_THROWS_WITH(passed_values(source, {"first", "second"}, all, {})(1, {3, 8}, true),
                    Catch::Matchers::Contains("second also uses a value of first whose"));
}
