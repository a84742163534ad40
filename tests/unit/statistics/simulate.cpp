#include "simulate.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include <fmt/format.h>

namespace trainopt::test {
namespace {

constexpr double kStallsIn = 0.02;  ///< the share of turns that stall

double lognormal(double sd, PhiloxStream& random) { return std::exp(sd * random.next_normal()); }

/// Noise whose turns do not depend on earlier turns.
Noise independent(std::string name, const Machine& turn) {
  return {.name = std::move(name), .start = [turn](int64_t, PhiloxStream&) { return turn; }};
}

Noise autocorrelated() {
  return {.name = "AR(1), phi 0.9, 3 %", .start = [](int64_t, PhiloxStream& random) -> Machine {
            return [state = 0.03 * random.next_normal()](int64_t, Arm, PhiloxStream& turn) mutable {
              state = 0.9 * state + 0.03 * std::sqrt(1 - 0.81) * turn.next_normal();
              return std::exp(state);
            };
          }};
}

Noise drift() {
  return {.name = "slower by 20 % over the run, and 1 %", .start = [](int64_t turns, PhiloxStream&) -> Machine {
            return [turns](int64_t turn, Arm, PhiloxStream& random) {
              return (1 + 0.2 * static_cast<double>(turn) / static_cast<double>(turns)) * lognormal(0.01, random);
            };
          }};
}

Noise random_walk() {
  return {.name = "random walk, 1 % a turn", .start = [](int64_t, PhiloxStream&) -> Machine {
            return
                [state = 1.0](int64_t, Arm, PhiloxStream& random) mutable { return state *= lognormal(0.01, random); };
          }};
}

Noise sine() {
  return independent("sine of ±5 %, 9.7 turns, and 1 %", [](int64_t turn, Arm, PhiloxStream& random) {
    return (1 + 0.05 * std::sin(2 * std::numbers::pi * static_cast<double>(turn) / 9.7)) * lognormal(0.01, random);
  });
}

Noise bursts() {
  return independent("bursts: 2 % of turns, times 1.3 to 10, and 1 %", [](int64_t, Arm, PhiloxStream& random) {
    const double usual = lognormal(0.01, random);
    return random.next_unit() < 0.02 ? usual * random.next_uniform(1.3, 10) : usual;
  });
}

Noise two_clocks() {
  return {.name = "two clocks, 30 % apart, a change every 20 turns, and 0.5 %",
          .start = [](int64_t, PhiloxStream& random) -> Machine {
            return [slow = random.next_unit() < 0.5](int64_t, Arm, PhiloxStream& turn) mutable {
              slow ^= turn.next_unit() < 0.05;
              return (slow ? 1.3 : 1) * lognormal(0.005, turn);
            };
          }};
}

/// B has an exponential tail of mean `mean`, and a minimum that much lower, so the arms' mean times are equal.
Noise tail(double mean) {
  Noise noise = independent(fmt::format("B alone with a one-sided tail of {:g} %, and 1 %", 100 * mean),
                            [mean](int64_t, Arm arm, PhiloxStream& random) {
                              const double usual = lognormal(0.01, random);
                              if (arm == Arm::a) return usual;
                              return usual * (1 - mean - mean * std::log1p(-random.next_unit()));
                            });
  noise.one_arm = true;
  return noise;
}

/// Accumulates the turns of one arm.
struct ArmTimes {
  double sum = 0, longest = 0;
  int64_t turns = 0;

  void add(double seconds) {
    sum += seconds;
    longest = std::max(longest, seconds);
    ++turns;
  }
};

Measurement measurement(const ArmTimes& a, const ArmTimes& b) {
  const auto turns = static_cast<double>(a.turns);
  return {
      .seconds_per_sample = {a.sum / turns, b.sum / turns}, .longest_turn = {a.longest, b.longest}, .turns = a.turns};
}

/// Four turns of arms that take `a` and `b` without noise.
void add_white_block(double a, double b, double sd, PhiloxStream& random, ArmTimes& times_a, ArmTimes& times_b) {
  for (int turn = 0; turn < 2; ++turn) {
    times_a.add(a * lognormal(sd, random));
    times_b.add(b * lognormal(sd, random));
  }
}

}  // namespace

Noise white(double sd) {
  return independent(fmt::format("white, {:g} % a turn", 100 * sd),
                     [sd](int64_t, Arm, PhiloxStream& random) { return lognormal(sd, random); });
}

Noise every_fourth() {
  return independent("every fourth turn slower by 5 %, and 1 %", [](int64_t turn, Arm, PhiloxStream& random) {
    return (turn % 4 == 0 ? 1.05 : 1) * lognormal(0.01, random);
  });
}

Noise stalls(double factor, double sd) {
  Noise noise = independent(fmt::format("B alone stalls, 2 % of turns, times {:g}, and {:g} %", factor, 100 * sd),
                            [factor, sd](int64_t, Arm arm, PhiloxStream& random) {
                              const double usual = lognormal(sd, random);
                              if (arm == Arm::a) return usual;
                              const bool stalls = random.next_unit() < kStallsIn;
                              return usual * (stalls ? factor : 1) / (1 + kStallsIn * (factor - 1));
                            });
  noise.one_arm = noise.stalls = true;
  return noise;
}

std::vector<Noise> noises() {
  std::vector<Noise> all{white(0.005), white(0.01),    white(0.03), autocorrelated(), drift(),    random_walk(),
                         sine(),       every_fourth(), bursts(),    two_clocks(),     tail(0.03), tail(0.1)};
  for (const double factor : {1.5, 2.0, 4.0, 10.0})
    for (const double sd : {0.01, 0.03}) all.push_back(stalls(factor, sd));
  return all;
}

std::vector<Measurement> simulate(const Noise& noise, double ratio, int64_t blocks, uint64_t seed, OrderRule order) {
  PhiloxStream random(mix_key(seed, noise.name));
  const Machine machine = noise.start(4 * blocks, random);
  std::vector<Measurement> result;
  for (int64_t block = 0; block < blocks; ++block) {
    const bool abba = order(seed, block) == Order::abba;
    ArmTimes a, b;
    for (int64_t turn = 0; turn < 4; ++turn) {
      const bool outer = turn == 0 || turn == 3;
      const Arm arm = outer == abba ? Arm::a : Arm::b;
      const double time = machine(4 * block + turn, arm, random);
      if (arm == Arm::a)
        a.add(time);
      else
        b.add(time / ratio);
    }
    result.push_back(measurement(a, b));
  }
  return result;
}

std::vector<Measurement> simulate_pairs(const Processes& processes, double ratio, int64_t pairs, uint64_t seed,
                                        OrderRule made_first) {
  PhiloxStream random(mix_key(seed, "pairs of processes"));
  std::vector<Measurement> result;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const bool a_first = made_first(seed, pair) == Order::abba;
    const double slower = 1 + processes.second_slower;
    const double a = lognormal(processes.process_sd, random) * (a_first ? 1 : slower),
                 b = lognormal(processes.process_sd, random) * (a_first ? slower : 1) / ratio;
    ArmTimes times_a, times_b;
    for (int64_t block = 0; block < processes.blocks_a_pair; ++block)
      add_white_block(a, b, processes.block_sd, random, times_a, times_b);
    result.push_back(measurement(times_a, times_b));
  }
  return result;
}

std::vector<Measurement> simulate_one_pair(const Processes& processes, double ratio, int64_t blocks, uint64_t seed) {
  PhiloxStream random(mix_key(seed, "one pair of processes"));
  const double a = lognormal(processes.process_sd, random), b = lognormal(processes.process_sd, random) / ratio;
  std::vector<Measurement> result;
  for (int64_t block = 0; block < blocks; ++block) {
    ArmTimes times_a, times_b;
    add_white_block(a, b, processes.block_sd, random, times_a, times_b);
    result.push_back(measurement(times_a, times_b));
  }
  return result;
}

std::vector<double> autoregressive(size_t count, double phi, double sd, uint64_t seed) {
  PhiloxStream random(mix_key(seed, "series"));
  std::vector<double> values;
  double state = sd * random.next_normal();
  for (size_t i = 0; i < count; ++i)
    values.push_back(state = phi * state + sd * std::sqrt(1 - phi * phi) * random.next_normal());
  return values;
}

std::vector<Piece> steps(size_t count, double phi, uint64_t seed, double faster) {
  std::vector<Piece> pieces;
  for (const double value : autoregressive(count, phi, 0.05, seed)) pieces.push_back({32, 0.1 * (1 + value) / faster});
  return pieces;
}

SequentialVerdict decide(std::span<const Measurement> measurements, const SequentialOptions& options) {
  SequentialVerdict sequential(options);
  for (const Measurement& measurement : measurements) {
    sequential.add(measurement);
    if (sequential.decided()) return sequential;
  }
  sequential.finish();
  return sequential;
}

bool full_rates() { return std::getenv("TRAINOPT_FULL_RATES") != nullptr; }
int64_t trials(int64_t few, int64_t many) { return full_rates() ? many : few; }

bool exceeds(int64_t count, int64_t trials, double max_rate) {
  const auto n = static_cast<double>(trials);
  double at_least = 0;
  for (auto k = static_cast<double>(count); k <= n; ++k)
    at_least += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(max_rate) +
                         (n - k) * std::log1p(-max_rate));
  return at_least < 1e-4;
}

}  // namespace trainopt::test
