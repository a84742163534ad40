#include "compare/round.h"

#include "base/error.h"
#include "compare/json_values.h"

#include <algorithm>

namespace trainopt {

Block block_of(const Round& round, size_t a, size_t b) {
  Block block;
  block.pair = round.set;
  block.other_load_pct = round.other_load_pct;
  size_t taken = 0;
  for (size_t turn = 0; turn < round.turns.size(); ++turn) {
    const size_t arm = round.arm_of(turn);
    if (arm != a && arm != b) continue;
    if (taken == 0) block.order = arm == a ? Order::abba : Order::baab;
    TRAINOPT_CHECK(taken < block.turns.size());
    block.turns[taken++] = round.turns[turn];
  }
  TRAINOPT_CHECK(taken == block.turns.size());
  return block;
}

std::vector<Block> blocks_of(std::span<const Round> rounds, size_t a, size_t b) {
  std::vector<Block> blocks;
  for (const Round& round : rounds) blocks.push_back(block_of(round, a, b));
  return blocks;
}

size_t end_of_measurement(std::span<const Round> rounds, size_t begin, bool by_set) {
  size_t end = begin + 1;
  while (by_set && end < rounds.size() && rounds[end].set == rounds[begin].set) ++end;
  return end;
}

Json to_json(const Round& round) {
  Json turns = Json::array();
  for (size_t i = 0; i < round.turns.size(); ++i) {
    Json turn = {{"arm", round.arm_of(i)}};
    turn.update(to_json(round.turns[i]));
    turns.push_back(std::move(turn));
  }
  return {{"order", round.order},
          {"set", round.set},
          {"other_load_pct", or_null(round.other_load_pct)},
          {"turns", std::move(turns)}};
}

Round round_from(const Json& json, size_t arms) {
  Round round;
  round.order = json.at("order").get<std::vector<size_t>>();
  round.set = json.at("set");
  round.other_load_pct = optional_at<double>(json, "other_load_pct");
  for (const Json& turn : json.at("turns")) round.turns.push_back(turn_from(turn));
  std::vector<size_t> all = round.order;
  std::sort(all.begin(), all.end());
  bool sound = all.size() == arms && round.turns.size() == 2 * arms;
  for (size_t i = 0; i < all.size(); ++i) sound = sound && all[i] == i;
  for (const Turn& turn : round.turns) sound = sound && turn.seconds > 0 && turn.samples > 0;
  if (!sound) throw UserError("it has a round without a turn of every arm, or turns without time", ExitCode::data);
  return round;
}

}  // namespace trainopt
