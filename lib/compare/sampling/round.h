// A round: how any number of arms share the machine.
#pragma once

#include "base/json.h"
#include "metrics/phases.h"
#include "statistics/block_order.h"
#include "statistics/verdict.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trainopt {

// Measurements of the turns and blocks of a comparison.

/// Several steps of one arm, with the device idle at both ends.
struct Turn {
  int64_t steps = 0, samples = 0;
  int64_t tokens = 0;                   ///< tokens to predict, without padding; 0 for images
  double seconds = 0;                   ///< wall time, including the waits at both ends
  double data_wait_s = 0;               ///< part of it spent waiting for data
  double cpu_s = 0;                     ///< CPU time of the arm's processes on this machine meanwhile
  double cpu_outside_s = 0;             ///< part of it in other processes than this one; not stored
  std::vector<double> step_ms, losses;  ///< one value for each step
  PhaseSums phases;                     ///< sums over all steps; with several ranks, rank 0's
  std::optional<double> sm_clock_mhz;   ///< mean; null without a GPU
  std::optional<int64_t> throttle;      ///< bits of gpu_throttle that were set in any step
  int64_t overflows = 0;                ///< steps that changed nothing because float16 overflowed
};

/// One turn that continues another of the same arm.
Turn joined(Turn first, const Turn& next);

/// Four turns: A B B A, or B A A B.
struct Block {
  Order order = Order::abba;
  int64_t pair = 0;           ///< index of the pair of processes; 0 if there is only one
  std::array<Turn, 4> turns;  ///< in chronological order
  /// Load by other processes during the block, in % of the cores that the comparison may use. Counted in clock ticks,
  /// so it is inaccurate for a short block. null: unknown
  std::optional<double> other_load_pct;

  /// Whether turn `i` is A's.
  bool is_a(size_t i) const { return (i == 0 || i == 3) == (order == Order::abba); }
  /// Seconds and samples of one arm's two turns.
  double seconds(bool of_a) const;
  int64_t samples(bool of_a) const;
  /// What throughput counts in one arm's two turns: tokens if both arms have them, since a sample of one may have more
  /// tokens than a sample of the other; otherwise samples.
  int64_t work(bool of_a) const;
  int64_t work(const Turn& turn) const { return counts_tokens() ? turn.tokens : turn.samples; }
  /// log of the ratio of B's throughput to A's.
  double log_ratio() const;

 private:
  bool counts_tokens() const;
};

/// One measurement for the verdict from the blocks whose order one coin toss decided: a block, or all blocks of a pair.
/// `blocks` must not be empty.
Measurement measurement_of(std::span<const Block> blocks);
/// The blocks of each measurement: one block or, with `by_pair`, those of a pair, which are contiguous.
std::vector<std::span<const Block>> groups_of(std::span<const Block> blocks, bool by_pair);
/// The measurements for the verdict, one per group.
std::vector<Measurement> measurements_of(std::span<const Block> blocks, bool by_pair);

Json to_json(const Turn& turn);
Turn turn_from(const Json& json);
Json to_json(const Block& block);
Block block_from(const Json& json);

/// A turn of every arm in a random order, then one of each in the reverse order. With two arms it is a block.
struct Round {
  std::vector<size_t> order;             ///< the arms' indices in the order of the first turns
  int64_t set = 0;                       ///< index of the set of processes; 0 if there is only one
  std::vector<Turn> turns;               ///< in chronological order, two of each arm
  bool ended_early = false;              ///< a turn did (TurnLimit), so this is not a measurement; not stored
  std::optional<double> other_load_pct;  ///< as in Block

  size_t arms() const { return order.size(); }
  /// Whose turn `turn` is.
  size_t arm_of(size_t turn) const { return order[turn < arms() ? turn : 2 * arms() - 1 - turn]; }
};

/// The turns of two arms alone, as a block with `a` as A and `b` as B.
Block block_of(const Round& round, size_t a, size_t b);
std::vector<Block> blocks_of(std::span<const Round> rounds, size_t a, size_t b);

/// The end of the group of rounds that begins at `begin` and is one measurement: one round or, with `by_set`, all of
/// its set.
size_t end_of_measurement(std::span<const Round> rounds, size_t begin, bool by_set);

Json to_json(const Round& round);
/// Throws Json::exception, and UserError(data) if it is not a round of `arms` arms with turns that took time.
Round round_from(const Json& json, size_t arms);

}  // namespace trainopt
