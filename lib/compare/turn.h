// What was measured while the arms of a comparison took turns.
#pragma once

#include "base/json.h"
#include "statistics/block_order.h"
#include "statistics/verdict.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trainopt {

/// Some steps of one arm, with the device idle at both ends.
struct Turn {
  int64_t steps = 0, samples = 0;
  double seconds = 0;                   ///< wall time, the waits at both ends included
  double data_wait_s = 0;               ///< of it, blocked on data
  double cpu_s = 0;                     ///< CPU time of the arm's process meanwhile
  std::vector<double> step_ms, losses;  ///< of each step
  std::optional<double> sm_clock_mhz;   ///< mean; null without a GPU
  std::optional<int64_t> throttle;      ///< bits of gpu_throttle that were set in any step
};

/// Four turns: A B B A, or B A A B.
struct Block {
  Order order = Order::abba;
  int64_t pair = 0;           ///< which pair of processes took them; 0 where there is one pair alone
  std::array<Turn, 4> turns;  ///< in the order of time
  std::optional<double>
      other_load_pct;  ///< CPU time of other processes meanwhile on the cores that the comparison may use; counted in
                       ///< ticks, so a short block may be off either way. null: not known

  /// Whether turn `i` is A's.
  bool is_a(size_t i) const { return (i == 0 || i == 3) == (order == Order::abba); }
  /// Seconds and samples of one arm's two turns.
  double seconds(bool of_a) const;
  int64_t samples(bool of_a) const;
  /// log of B's throughput over A's.
  double log_ratio() const;
};

/// Blocks that one coin made exchangeable, as the verdict takes them: a block, or all of a pair's. Not empty.
Measurement measurement_of(std::span<const Block> blocks);
/// What the verdict takes: each block, or with `by_pair` each pair's blocks, which follow each other.
std::vector<Measurement> measurements_of(std::span<const Block> blocks, bool by_pair);

Json to_json(const Turn& turn);
Turn turn_from(const Json& json);
Json to_json(const Block& block);
Block block_from(const Json& json);

}  // namespace trainopt
