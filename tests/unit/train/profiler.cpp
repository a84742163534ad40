#include "support/catch.h"
#include "train/observe/profiler.h"

using namespace trainopt;

namespace {

/// One letter per step: n(one), w(armup), a(ctive).
std::string schedule(const ProfilerConfig& config, int64_t steps) {
  std::string text;
  for (int64_t step = 0; step < steps; ++step) text += "nwa"[static_cast<int>(profiling_of(config, step))];
  return text;
}

}  // namespace

TEST_CASE("steps are profiled as torch.profiler.schedule decides") {
  // [torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1)(i).name for i in range(8)], and so on
  CHECK(schedule({}, 8) == "nwaaannn");
  CHECK(schedule({.wait = 2, .warmup = 0, .active = 1, .repeat = 2}, 8) == "nnannann");
  CHECK(schedule({.wait = 0, .warmup = 1, .active = 2, .repeat = 0}, 8) == "waawaawa");
  CHECK(schedule({.wait = 0, .warmup = 0, .active = 2, .repeat = 2}, 6) == "aaaann");
  CHECK(profiled_steps({}) == 5);
  CHECK(profiled_steps({.wait = 2, .warmup = 0, .active = 1, .repeat = 3}) == 9);
}
