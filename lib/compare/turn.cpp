#include "compare/turn.h"

#include "compare/json_values.h"

#include <cmath>

namespace trainopt {

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

double Block::log_ratio() const {
  return std::log(static_cast<double>(samples(false)) / seconds(false)) -
         std::log(static_cast<double>(samples(true)) / seconds(true));
}

Json to_json(const Turn& turn) {
  return {{"steps", turn.steps},
          {"samples", turn.samples},
          {"seconds", turn.seconds},
          {"data_wait_s", turn.data_wait_s},
          {"cpu_s", turn.cpu_s},
          {"step_ms", turn.step_ms},
          {"losses", turn.losses},
          {"sm_clock_mhz", or_null(turn.sm_clock_mhz)},
          {"throttle", or_null(turn.throttle)}};
}

Turn turn_from(const Json& json) {
  Turn turn;
  turn.steps = json.at("steps");
  turn.samples = json.at("samples");
  turn.seconds = json.at("seconds");
  turn.data_wait_s = json.at("data_wait_s");
  turn.cpu_s = json.at("cpu_s");
  turn.step_ms = json.at("step_ms").get<std::vector<double>>();
  turn.losses = json.at("losses").get<std::vector<double>>();
  turn.sm_clock_mhz = optional_at<double>(json, "sm_clock_mhz");
  turn.throttle = optional_at<int64_t>(json, "throttle");
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
          {"other_load_pct", or_null(block.other_load_pct)},
          {"turns", std::move(turns)}};
}

Block block_from(const Json& json) {
  Block block;
  block.order = json.at("order") == "abba" ? Order::abba : Order::baab;
  block.other_load_pct = optional_at<double>(json, "other_load_pct");
  for (size_t i = 0; i < block.turns.size(); ++i) block.turns[i] = turn_from(json.at("turns").at(i));
  return block;
}

}  // namespace trainopt
