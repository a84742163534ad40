// Which arms may share a process.
#include "compare/arms/make_arm.h"
#include "recipe/make_plan.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

/// Where a plain job and one with the allocator's switch are compared.
ArmHost host_on(const std::string& device) {
  Recipe plain, switched;
  plain.device = switched.device = device;
  switched.optimizations.cuda_allocator.on = true;
  const Machine machine = assume(Machine{}, "gpus=1,arch=sm_80").machine;
  return host_of(std::vector{make_plan(plain, machine), make_plan(switched, machine)});
}

}  // namespace

TEST_CASE("jobs that set the GPU's allocator differently are compared in processes of their own") {
  CHECK(host_on("cuda") == ArmHost::own_process);
  CHECK(host_on("cpu") == ArmHost::this_process);
}
