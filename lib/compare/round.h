// A round: how any number of arms share the machine.
#pragma once

#include "compare/turn.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace trainopt {

/// A turn of every arm in a random order, then one of each in the reverse order. With two arms it is a block.
struct Round {
  std::vector<size_t> order;             ///< of the first turns: the arms' indices
  int64_t set = 0;                       ///< index of the set of processes; 0 if there is only one
  std::vector<Turn> turns;               ///< in chronological order, two of each arm
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
