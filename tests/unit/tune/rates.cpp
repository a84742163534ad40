// How often a tuning claims a change that has no effect, with the program's own test on simulated turns. Short by
// default; TRAINOPT_FULL_RATES=1 runs 10,000 tunings.
#include "tune/tuner.h"
#include "unit/statistics/simulate.h"

#include <catch2/catch.hpp>

namespace trainopt {
namespace {

/// Every candidate is the same job again, on a machine whose noise is another one in each trial. The noise of both arms
/// is alike: an arm that alone stalls in 2 % of its turns differs, and few turns cannot show it (lib/statistics).
class SimulatedBench : public TuningBench {
 public:
  explicit SimulatedBench(uint64_t seed) : seed_(seed) {}

  Diagnosis diagnose(const Words&) override {
    Diagnosis diagnosis;
    for (int i = 0; i < 8; ++i)
      diagnosis.candidates.push_back({.what = "change nothing", .change = {fmt::format("c{}=1", i)}, .estimate = 1.2});
    return diagnosis;
  }
  Trial compare(const Words&, const Words&, double level, int64_t look) override {
    constexpr int64_t kBlocks = 27;
    static const auto all = [] {
      auto noises = test::noises();
      std::erase_if(noises, [](const test::Noise& noise) { return noise.stalls; });
      return noises;
    }();
    const uint64_t seed = 1000 * seed_ + ++trials_;
    const auto measurements = test::simulate(all[(seed_ + trials_) % all.size()], 1, kBlocks * (1 + look), seed);
    const SequentialVerdict verdict = test::decide(measurements, {.level = level, .seed = seed});
    return {.verdict = verdict.verdict(), .ratio = 1.01, .numbers_agree = true};
  }
  bool over() const override { return false; }

 private:
  uint64_t seed_, trials_ = 0;
};

}  // namespace

TEST_CASE("of tunings without an effect, at most the stated share claims a change", "[rates]") {
  const int64_t tunings = test::trials(60);
  int64_t claimed = 0, trials = 0;
  for (int64_t i = 0; i < tunings; ++i) {
    SimulatedBench bench(static_cast<uint64_t>(i));
    const Tuning tuning = tune(bench, {}, {}, [](const Tuning&) {});
    claimed += !tuning.change().empty();
    trials += std::ssize(tuning.steps);
  }
  INFO(claimed << " of " << tunings << " tunings claimed a change, in " << trials << " trials");
  if (test::full_rates()) WARN(claimed << " of " << tunings << " tunings claimed a change, in " << trials << " trials");
  CHECK(trials >= 8 * tunings);
  CHECK(claimed <= tunings / 20);  // of these 60, six if every trial had the tuning's level
}

}  // namespace trainopt
