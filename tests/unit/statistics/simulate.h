// Two arms that take turns on a machine whose speed wanders. No clocks: every number is a function of the seed.
#pragma once

#include "base/philox.h"
#include "statistics/block_order.h"
#include "statistics/verdict.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trainopt::test {

enum class Arm { a, b };

/// The time that the next turn takes, for the same work. Turns are numbered from 0 and asked for in order.
using Machine = std::function<double(int64_t turn, Arm arm, PhiloxStream& random)>;

struct Noise {
  std::string name;
  /// A machine at the start of a run of `turns` turns, both arms' together.
  std::function<Machine(int64_t turns, PhiloxStream& random)> start;
  bool one_arm = false;  ///< what varies differs between the arms; their mean times do not
  bool stalls = false;   ///< B alone now and then takes much longer
};

Noise white(double sd);
/// B, and B only, takes `factor` times as long in 2 % of its turns; the rest is so much faster that the means are
/// equal.
Noise stalls(double factor, double sd);
/// Every fourth turn is slower by 5 %: what the coin is for.
Noise every_fourth();
/// All that the tables have, white noise first and stalls last.
std::vector<Noise> noises();

/// Who begins a block.
using OrderRule = Order (*)(uint64_t seed, int64_t block);
inline Order always_abba(uint64_t, int64_t) { return Order::abba; }

/// `blocks` blocks of four turns each. B's mean throughput is `ratio` times A's.
std::vector<Measurement> simulate(const Noise& noise, double ratio, int64_t blocks, uint64_t seed,
                                  OrderRule order = block_order);

/// Processes that differ: each draws a factor that its turns keep.
struct Processes {
  double process_sd = 0.01;
  double block_sd = 0.03;    ///< of a block's log ratio
  double second_slower = 0;  ///< how much slower the process made second is
  int64_t blocks_a_pair = 3;
};

/// One measurement for each of `pairs` pairs of fresh processes; a coin decides which arm's process is made first.
std::vector<Measurement> simulate_pairs(const Processes& processes, double ratio, int64_t pairs, uint64_t seed,
                                        OrderRule made_first = block_order);
/// One pair of processes for all `blocks` blocks, each a measurement.
std::vector<Measurement> simulate_one_pair(const Processes& processes, double ratio, int64_t blocks, uint64_t seed);

/// AR(1) with standard deviation `sd` around 0.
std::vector<double> autoregressive(size_t count, double phi, double sd, uint64_t seed);

/// Adds the measurements until the verdict is decided; where they end without, that is the last look.
SequentialVerdict decide(std::span<const Measurement> measurements, const SequentialOptions& options);

/// The number of trials of a row: `few`, or `many` where TRAINOPT_FULL_RATES is set.
int64_t trials(int64_t few, int64_t many = 10000);
bool full_rates();

/// Whether `count` of `trials` is too many for a probability of `most` each: as many or more would come up less than
/// once in 10,000 times.
bool exceeds(int64_t count, int64_t trials, double most);

}  // namespace trainopt::test
