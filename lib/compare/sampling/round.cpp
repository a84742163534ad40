#include "compare/sampling/round.h"

#include "base/error.h"
#include "compare/json_values.h"

#include <algorithm>
#include <cmath>

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

double Block::seconds(bool of_a) const {
  double sum = 0;
  for (size_t i = 0; i < turns.size(); ++i)
    if (is_a(i) == of_a) sum += turns[i].seconds;
  return sum;
}

int64_t Block::samples(bool of_a) const {
  int64_t sum = 0;
  for (size_t i = 0; i < turns.size(); ++i)
    if (is_a(i) == of_a) sum += turns[i].samples;
  return sum;
}

bool Block::counts_tokens() const {
  return std::all_of(turns.begin(), turns.end(), [](const Turn& turn) { return turn.tokens > 0; });
}

int64_t Block::work(bool of_a) const {
  int64_t sum = 0;
  for (size_t i = 0; i < turns.size(); ++i)
    if (is_a(i) == of_a) sum += work(turns[i]);
  return sum;
}

double Block::log_ratio() const {
  return std::log(static_cast<double>(work(false)) / seconds(false)) -
         std::log(static_cast<double>(work(true)) / seconds(true));
}

Measurement measurement_of(std::span<const Block> blocks) {
  double seconds_a = 0, seconds_b = 0, work_a = 0, work_b = 0;
  Measurement all{.seconds_per_sample = {}, .longest_turn = {}, .turns = 0};
  for (const Block& block : blocks) {
    seconds_a += block.seconds(true);
    seconds_b += block.seconds(false);
    work_a += static_cast<double>(block.work(true));
    work_b += static_cast<double>(block.work(false));
    all.turns += static_cast<int64_t>(block.turns.size() / 2);
    for (size_t i = 0; i < block.turns.size(); ++i) {
      double& longest = block.is_a(i) ? all.longest_turn.a : all.longest_turn.b;
      longest = std::max(longest, block.turns[i].seconds / static_cast<double>(block.work(block.turns[i])));
    }
  }
  all.seconds_per_sample = {seconds_a / work_a, seconds_b / work_b};
  return all;
}

std::vector<std::span<const Block>> groups_of(std::span<const Block> blocks, bool by_pair) {
  std::vector<std::span<const Block>> groups;
  for (size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    while (end < blocks.size() && (end == begin || (by_pair && blocks[end].pair == blocks[begin].pair))) ++end;
    groups.push_back(blocks.subspan(begin, end - begin));
  }
  return groups;
}

std::vector<Measurement> measurements_of(std::span<const Block> blocks, bool by_pair) {
  std::vector<Measurement> all;
  for (const auto& group : groups_of(blocks, by_pair)) all.push_back(measurement_of(group));
  return all;
}

Turn joined(Turn first, const Turn& next) {
  first.steps += next.steps;
  first.samples += next.samples;
  first.tokens += next.tokens;
  first.seconds += next.seconds;
  first.data_wait_s += next.data_wait_s;
  first.cpu_s += next.cpu_s;
  first.cpu_outside_s += next.cpu_outside_s;
  first.step_ms.insert(first.step_ms.end(), next.step_ms.begin(), next.step_ms.end());
  first.losses.insert(first.losses.end(), next.losses.begin(), next.losses.end());
  first.phases.add(next.phases);
  first.sm_clock_mhz = next.sm_clock_mhz;
  if (next.throttle) first.throttle = first.throttle.value_or(0) | *next.throttle;
  first.overflows += next.overflows;
  return first;
}

Json to_json(const Turn& turn) {
  return {{"steps", turn.steps},
          {"samples", turn.samples},
          {"tokens", turn.tokens},
          {"seconds", turn.seconds},
          {"data_wait_s", turn.data_wait_s},
          {"cpu_s", turn.cpu_s},
          {"step_ms", turn.step_ms},
          {"losses", turn.losses},
          {"phases", to_json(turn.phases)},
          {"sm_clock_mhz", or_null(turn.sm_clock_mhz)},
          {"throttle", or_null(turn.throttle)},
          {"overflows", turn.overflows}};
}

Turn turn_from(const Json& json) {
  Turn turn;
  turn.steps = json.at("steps");
  turn.samples = json.at("samples");
  turn.tokens = json.at("tokens");
  turn.seconds = json.at("seconds");
  turn.data_wait_s = json.at("data_wait_s");
  turn.cpu_s = json.at("cpu_s");
  turn.step_ms = json.at("step_ms").get<std::vector<double>>();
  for (const Json& loss : json.at("losses")) turn.losses.push_back(loss.is_null() ? NAN : loss.get<double>());
  turn.phases = phase_sums_from(json.at("phases"));
  turn.sm_clock_mhz = optional_at<double>(json, "sm_clock_mhz");
  turn.throttle = optional_at<int64_t>(json, "throttle");
  turn.overflows = json.value("overflows", int64_t{0});
  return turn;
}

Json to_json(const Block& block) {
  Json turns = Json::array();
  for (size_t i = 0; i < block.turns.size(); ++i) {
    Json turn = {{"arm", block.is_a(i) ? "a" : "b"}};
    turn.update(to_json(block.turns[i]));
    turns.push_back(std::move(turn));
  }
  return {{"order", block.order == Order::abba ? "abba" : "baab"},
          {"pair", block.pair},
          {"other_load_pct", or_null(block.other_load_pct)},
          {"turns", std::move(turns)}};
}

Block block_from(const Json& json) {
  Block block;
  block.order = json.at("order") == "abba" ? Order::abba : Order::baab;
  block.pair = json.at("pair");
  block.other_load_pct = optional_at<double>(json, "other_load_pct");
  for (size_t i = 0; i < block.turns.size(); ++i) block.turns[i] = turn_from(json.at("turns").at(i));
  return block;
}

}  // namespace trainopt
