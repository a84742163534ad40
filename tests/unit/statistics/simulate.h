// Two arms that take turns on a machine whose speed wanders. No clocks: every number is a function of the seed.
#pragma once

#include "statistics/block_order.h"
#include "statistics/verdict.h"

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt::test {

/// How the time of one and the same turn varies over a run.
enum class Noise { white, trend, random_walk, autocorrelated, outliers, two_clocks, every_fourth };
inline constexpr Noise kNoises[] = {Noise::white,    Noise::trend,      Noise::random_walk, Noise::autocorrelated,
                                    Noise::outliers, Noise::two_clocks, Noise::every_fourth};
std::string describe(Noise noise);

/// Who begins a block.
using OrderRule = Order (*)(uint64_t seed, int64_t block);
inline Order always_abba(uint64_t, int64_t) { return Order::abba; }

/// The log ratios of `blocks` blocks of four turns each; B's throughput is `ratio` times A's.
std::vector<double> simulate(Noise noise, double ratio, int64_t blocks, uint64_t seed, OrderRule order = block_order);

/// Adds the differences until the verdict is decided; the last look is where they end.
SequentialVerdict decide(const std::vector<double>& differences, SequentialOptions options);

/// Whether `count` of `trials` is too many for a probability of `most` each: as many or more would come up less than
/// once in 10,000 times.
bool exceeds(int64_t count, int64_t trials, double most);

}  // namespace trainopt::test
