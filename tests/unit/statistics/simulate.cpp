#include "simulate.h"

#include "base/philox.h"

#include <array>
#include <cmath>

namespace trainopt::test {
namespace {

/// Logarithms of the turns' times.
std::vector<double> turns(Noise noise, size_t count, uint64_t seed) {
  PhiloxStream random(mix_key(seed, "noise"));
  std::vector<double> times(count);
  double state = 0;
  bool slow = random.next_unit() < 0.5;
  for (size_t i = 0; i < count; ++i) {
    const double z = random.next_normal();
    switch (noise) {
      case Noise::white:
        times[i] = 0.02 * z;
        break;
      case Noise::trend:
        times[i] = 0.2 * static_cast<double>(i) / static_cast<double>(count) + 0.01 * z;
        break;
      case Noise::random_walk:
        times[i] = state += 0.01 * z;
        break;
      case Noise::autocorrelated:
        times[i] = state = 0.9 * state + 0.03 * std::sqrt(1 - 0.81) * z;
        break;
      case Noise::outliers:
        times[i] = 0.01 * z + (random.next_unit() < 0.03 ? std::log(3.0) : 0.0);
        break;
      case Noise::two_clocks:
        slow ^= random.next_unit() < 0.05;
        times[i] = 0.005 * z + (slow ? 0.08 : 0.0);
        break;
      case Noise::every_fourth:
        times[i] = 0.01 * z + (i % 4 == 0 ? 0.05 : 0.0);
        break;
    }
  }
  return times;
}

}  // namespace

std::string describe(Noise noise) {
  switch (noise) {
    case Noise::white:
      return "white, 2 %";
    case Noise::trend:
      return "slower by 20 % over the run, and 1 %";
    case Noise::random_walk:
      return "random walk, 1 % a turn";
    case Noise::autocorrelated:
      return "AR(1), phi 0.9, 3 %";
    case Noise::outliers:
      return "3 % of the turns take three times as long, and 1 %";
    case Noise::two_clocks:
      return "two clocks, 8 % apart, a change every 20 turns, and 0.5 %";
    case Noise::every_fourth:
      break;
  }
  return "every fourth turn slower by 5 %, and 1 %";
}

std::vector<double> simulate(Noise noise, double ratio, int64_t blocks, uint64_t seed, OrderRule order) {
  const std::vector<double> times = turns(noise, static_cast<size_t>(4 * blocks), seed);
  std::vector<double> differences;
  for (int64_t block = 0; block < blocks; ++block) {
    const double* turn = &times[static_cast<size_t>(4 * block)];
    const double outer = std::exp(turn[0]) + std::exp(turn[3]), inner = std::exp(turn[1]) + std::exp(turn[2]);
    const bool abba = order(seed, block) == Order::abba;
    const double time_a = abba ? outer : inner, time_b = (abba ? inner : outer) / ratio;
    differences.push_back(std::log(time_a / time_b));
  }
  return differences;
}

SequentialVerdict decide(const std::vector<double>& differences, SequentialOptions options) {
  SequentialVerdict sequential(options);
  for (const double difference : differences) {
    sequential.add(difference);
    if (sequential.decided()) return sequential;
  }
  sequential.finish();
  return sequential;
}

bool exceeds(int64_t count, int64_t trials, double most) {
  const auto n = static_cast<double>(trials);
  double at_least = 0;
  for (auto k = static_cast<double>(count); k <= n; ++k)
    at_least += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(most) +
                         (n - k) * std::log1p(-most));
  return at_least < 1e-4;
}

}  // namespace trainopt::test
