// Simulates two arms that take turns on a machine of varying speed. No clocks: every number is a function of the seed.
#pragma once

#include "base/philox.h"
#include "statistics/block_bootstrap.h"
#include "statistics/block_order.h"
#include "statistics/verdict.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trainopt::test {

enum class Arm { a, b };

/// The time of the next turn, for the same work. Turns are numbered from 0 and requested in order.
using Machine = std::function<double(int64_t turn, Arm arm, PhiloxStream& random)>;

struct Noise {
  std::string name;
  /// A machine at the start of a run of `turns` turns of both arms together.
  std::function<Machine(int64_t turns, PhiloxStream& random)> start;
  bool one_arm = false;  ///< the noise differs between the arms; their mean times do not
  bool stalls = false;   ///< B alone occasionally takes much longer
};

Noise white(double sd);
/// B alone takes `factor` times as long in 2 % of its turns; its other turns are faster, so that the means are equal.
Noise stalls(double factor, double sd);
/// Every fourth turn is slower by 5 %: a period that only the coin toss guards against.
Noise every_fourth();
/// All rows of the tables, white noise first and stalls last.
std::vector<Noise> noises();

/// Decides which arm starts a block.
using OrderRule = Order (*)(uint64_t seed, int64_t block);
inline Order always_abba(uint64_t, int64_t) { return Order::abba; }

/// `blocks` blocks of four turns each. B's mean throughput is `ratio` times A's.
std::vector<Measurement> simulate(const Noise& noise, double ratio, int64_t blocks, uint64_t seed,
                                  OrderRule order = block_order);

/// Processes that differ: each draws a factor that applies to all its turns.
struct Processes {
  double process_sd = 0.01;
  double block_sd = 0.03;    ///< of a block's log ratio
  double second_slower = 0;  ///< how much slower the process created second is
  int64_t blocks_a_pair = 3;
};

/// One measurement for each of `pairs` pairs of fresh processes; a coin toss decides which arm's process is created
/// first.
std::vector<Measurement> simulate_pairs(const Processes& processes, double ratio, int64_t pairs, uint64_t seed,
                                        OrderRule made_first = block_order);
/// One pair of processes for all `blocks` blocks, each a measurement.
std::vector<Measurement> simulate_one_pair(const Processes& processes, double ratio, int64_t blocks, uint64_t seed);

/// AR(1) with standard deviation `sd` around 0.
std::vector<double> autoregressive(size_t count, double phi, double sd, uint64_t seed);

/// `count` steps of 32 samples in 0.1 s ÷ `faster`, with a standard deviation of 5 %.
std::vector<Piece> steps(size_t count, double phi, uint64_t seed, double faster = 1);

/// Adds measurements until the verdict is decided; if they run out first, takes the last look.
SequentialVerdict decide(std::span<const Measurement> measurements, const SequentialOptions& options);

/// The number of trials of a row: `few`, or `many` if TRAINOPT_FULL_RATES is set.
int64_t trials(int64_t few, int64_t many = 10000);
bool full_rates();

/// Binomial test: whether `count` of `trials` is too many for a probability of `max_rate` each, because as many or more
/// would occur with a probability below 1 in 10,000.
bool exceeds(int64_t count, int64_t trials, double max_rate);

}  // namespace trainopt::test
