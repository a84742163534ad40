// An arm with simulated times, to test verdicts without a clock.
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "compare/comparison.h"

#include <chrono>
#include <random>

namespace trainopt::test {

/// A limit that no test reaches.
inline const Clock::time_point kNever = Clock::now() + std::chrono::hours(24);

/// A machine shared by the arms that take turns on it, with noise common to them.
struct SimulatedMachine {
  explicit SimulatedMachine(uint64_t seed, double turn_noise = 0.01) : random(seed), noise(turn_noise) {}
  double factor() {
    ++turns;
    return std::exp(noise * std::normal_distribution<double>()(random) + drift * static_cast<double>(turns)) *
           (1 + heat);
  }
  std::mt19937_64 random;
  double noise, drift = 0;
  double heat = 0;  ///< carry-over from the previous turn, as a share of the next turn's time
  int64_t turns = 0;
};

class ScriptedArm : public Arm {
 public:
  ScriptedArm(std::shared_ptr<SimulatedMachine> machine, double step_s, int64_t step_samples = 32)
      : machine_(std::move(machine)), step_s_(step_s), step_samples_(step_samples) {}

  void limit_turns(const TurnLimit& limit) override { limit_ = limit; }
  Turn turn(int64_t steps) override {
    if (fails_after && ++turns > *fails_after)
      throw UserError("out of memory; lower data.batch_size", ExitCode::memory);
    if (limit_.is_reached() || (ends_early_after && taken >= *ends_early_after)) steps = 1;
    Turn turn;
    turn.steps = steps;
    turn.samples = steps * step_samples_;
    steps_ += steps;
    ++taken;
    const double step = step_s_ * machine_->factor() * (stalls_every && taken % *stalls_every == 0 ? stall : 1);
    machine_->heat = heat;
    turn.seconds = step * static_cast<double>(steps);
    turn.step_ms.assign(static_cast<size_t>(steps), 1e3 * step);
    turn.losses.assign(static_cast<size_t>(steps), 2.3);
    turn.throttle = throttle;
    return turn;
  }
  ArmFacts facts() override {
    ArmFacts facts;
    facts.step_samples = step_samples_;
    facts.time_to_first_step_s = 1.5;
    facts.plan = Json::object();
    facts.receipts = Json::object();
    return facts;
  }
  int64_t steps_taken() const override { return steps_; }
  const std::filesystem::path& folder() const override { return folder_; }

  std::optional<int64_t> fails_after;
  std::optional<int64_t> ends_early_after;  ///< turns after which every turn has one step
  std::optional<int64_t> throttle;
  int64_t turns = 0, taken = 0;
  std::optional<int64_t> stalls_every;  ///< in turns
  double stall = 1, heat = 0;           ///< factor on a turn that stalls; carry-over to the next turn of either arm

 private:
  std::shared_ptr<SimulatedMachine> machine_;
  double step_s_;
  int64_t step_samples_, steps_ = 0;
  TurnLimit limit_;
  std::filesystem::path folder_;
};

}  // namespace trainopt::test
