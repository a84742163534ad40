// Tests the CPU's update kernels against the reference.
#include "kernels/update_checks.h"

#include <ATen/Parallel.h>

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("updates match the reference, including scaling, skipping, clearing and copies") {
  check_every_rule(cpu_kernels(), at::kCPU);
}

TEST_CASE("updates work for more tensors than one GPU launch takes, and for none") {
  check_many_tensors(cpu_kernels(), at::kCPU);
}

TEST_CASE("updates match the reference for NaN, infinite, huge and subnormal gradients") {
  check_extreme_gradients(cpu_kernels(), at::kCPU);
}

TEST_CASE("the measurement of gradients matches the reference") { check_measures(cpu_kernels(), at::kCPU); }

TEST_CASE("16-bit copies are bit-identical to libtorch's cast") { check_copies(cpu_kernels(), at::kCPU); }

TEST_CASE("updates refuse gradients with other strides than their parameters") {
  check_layouts(cpu_kernels(), at::kCPU);
}

TEST_CASE("updates and measurements do not depend on the number of threads") {
  const int threads = at::get_num_threads();
  const auto run = [](int count, const RuleCase& rule) {
    at::set_num_threads(count);
    RuleState trained(rule, {300000, 7, 70001}, false, at::kCPU);
    at::manual_seed(1);
    for (auto* placed : {&trained.parameters, &trained.gradients})
      placed->set([](int64_t numbers) { return at::randn({numbers}); });
    auto all = trained.parameters.tensors;
    all.push_back(cpu_kernels().measure(trained.gradients.tensors, trained.updates).square_sum);
    rule.step(cpu_kernels(), trained.updates, trained.all(),
              {.learning_rate = on(at::kCPU, 0.1f), .factor = {}, .skip_update = {}, .clears = true});
    return all;
  };
  for (const RuleCase& rule : kRules) {
    const auto one = run(1, rule), three = run(3, rule);
    for (size_t i = 0; i < one.size(); ++i) CHECK(one[i].equal(three[i]));
  }
  at::set_num_threads(threads);
}
