#include "base/files.h"
#include "compare/against.h"
#include "compare/comparison_json.h"
#include "compare/json_values.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

constexpr int kAgainstSchema = 2;

Json samples_json(const MeasuredAlone& measured) {
  Json all = Json::array();
  for (const ProcessTurns& process : measured.processes) {
    Json turns = Json::array();
    for (const Turn& turn : process.turns) turns.push_back(to_json(turn));
    all.push_back({{"other_load_pct", or_null(process.other_load_pct)}, {"turns", std::move(turns)}});
  }
  return all;
}

MeasuredAlone measured_from(const Json& json) {
  MeasuredAlone measured;
  measured.ended = json.at("ended");
  measured.seconds = json.at("seconds");
  measured.failure = json.at("failure");
  for (const Json& sample : json.at("samples")) {
    ProcessTurns process{.turns = {}, .other_load_pct = optional_at<double>(sample, "other_load_pct")};
    for (const Json& turn : sample.at("turns")) process.turns.push_back(turn_from(turn));
    measured.processes.push_back(std::move(process));
  }
  measured.arm = arm_result_from(json.at("arms").at("b"));
  return measured;
}

bool sound(const Against& a) {
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  const auto measured = [&](const ProcessTurns& process) {
    return !process.turns.empty() && std::all_of(process.turns.begin(), process.turns.end(), [&](const Turn& turn) {
      return positive(turn.seconds) && turn.samples > 0;
    });
  };
  const auto& then = a.stored.seconds_per_sample;
  const auto& now = a.now.processes;
  const auto& pairing = a.stored.pairing;
  return !then.empty() && std::all_of(then.begin(), then.end(), positive) && !now.empty() &&
         std::all_of(now.begin(), now.end(), measured) && a.level > 0 && a.level < 1 && a.min_effect >= 0 &&
         (!pairing || (pairing->pairs >= 2 && pairing->sd >= 0));
}

Against read_against(const Json& json) {
  if (json.at("schema_version") != kAgainstSchema)
    throw UserError(fmt::format("it has schema_version {}, this build reads {}", json_text(json.at("schema_version")),
                                kAgainstSchema),
                    ExitCode::data);
  Against a{.stored = stored_arm_from(json.at("arms").at("a")),
            .now = measured_from(json),
            .differences = {},
            .interval = {},
            .no_verdict = {},
            .half_width = {},
            .paired_half_width = {},
            .warnings = {}};
  a.level = json.at("level");
  a.min_effect = json.at("min_effect");
  for (const Json& one : json.at("differences"))
    a.differences.push_back(
        {.what = one.at("what"), .then = one.at("then"), .now = one.at("now"), .of_machine = one.at("of_machine")});
  if (!sound(a))
    throw UserError("it has no processes, or turns without time or samples, or an invalid level or min_effect",
                    ExitCode::data);
  judge_against(a);
  if (std::abs(a.ratio - json.at("ratio").get<double>()) > 1e-9 * a.ratio ||
      text(a.verdict) != json.at("verdict").get<std::string>())
    throw UserError(fmt::format("the samples do not give the recorded result; they give {} with a ratio of {:.4f}",
                                text(a.verdict), a.ratio),
                    ExitCode::data);
  return a;
}

std::string turns_csv(const MeasuredAlone& measured) {
  std::string text = "process,turn,steps,samples,seconds,data_wait_s,cpu_s\n";
  for (size_t number = 0; number < measured.processes.size(); ++number)
    for (size_t i = 0; const Turn& t : measured.processes[number].turns)
      text += fmt::format("{},{},{},{},{:.9g},{:.9g},{:.9g}\n", number + 1, ++i, t.steps, t.samples, t.seconds,
                          t.data_wait_s, t.cpu_s);
  return text;
}

}  // namespace

bool is_against(const Json& result) {
  return result.is_object() && result.contains("differences") && result.contains("no_verdict");
}

Json to_json(const Against& a, bool with_samples) {
  Json json = {{"schema_version", kAgainstSchema},
               {"verdict", text(a.verdict)},
               {"ratio", a.ratio},
               {"interval", or_null(a.interval)},
               {"no_verdict", a.no_verdict.empty() ? Json() : Json(a.no_verdict)},
               {"level", a.level},
               {"min_effect", a.min_effect},
               {"paired", false},
               {"half_width", or_null(a.half_width)},
               {"paired_half_width", or_null(a.paired_half_width)},
               {"processes", a.now.processes.size()},
               {"ended", a.now.ended},
               {"failure", a.now.failure},
               {"seconds", a.now.seconds},
               {"own_processes", true},
               {"numerics", Json()},
               {"warnings", a.warnings}};
  json["differences"] = Json::array();
  for (const Difference& one : a.differences)
    json["differences"].push_back(
        {{"what", one.what}, {"then", one.then}, {"now", one.now}, {"of_machine", one.of_machine}});
  json["arms"] = {{"a", to_json(a.stored)}, {"b", to_json(a.now.arm)}};
  if (with_samples) json["samples"] = samples_json(a.now);
  return json;
}

Against against_from(const Json& json) {
  try {
    return read_against(json);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("it is not a result of compare --against: {}", error.what()), ExitCode::data);
  }
}

void write_against(const std::filesystem::path& folder, const Against& a, const Json& environment) {
  write_file(folder / "result.json", json_text(to_json(a, true), 1) + "\n");
  write_file(folder / "report.md", against_markdown(a));
  write_file(folder / "turns.csv", turns_csv(a.now));
  write_file(folder / "environment.json", json_text(environment, 2) + "\n");
}

}  // namespace trainopt
