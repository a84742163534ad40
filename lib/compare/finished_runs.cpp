#include "compare/finished_runs.h"

#include "base/files.h"
#include "compare/comparison_text.h"
#include "compare/json_values.h"
#include "metrics/format.h"

#include <sstream>

namespace trainopt {
namespace {

constexpr const char* kNotPaired =
    "the runs did not take turns, so this ratio includes whatever else changed on the machine between them, and no "
    "interval accounts for it; for a verdict, run trainopt compare on their recipes";

Json parse(const std::string& text, const std::filesystem::path& path) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("{} is not JSON: {}", path.string(), error.what()), ExitCode::data);
  }
}

}  // namespace

FinishedRun read_finished_run(const std::filesystem::path& run_dir) {
  const auto summary_path = run_dir / "summary.json", records_path = run_dir / "metrics.jsonl";
  const Json summary = parse(read_file(summary_path, ExitCode::data), summary_path);
  const int64_t left_out = summary.value("left_out_steps", int64_t{0});
  FinishedRun run{.name = run_dir.string(), .steps = {}, .last_loss = {}};
  std::istringstream lines(read_file(records_path, ExitCode::data));
  double samples_before = 0, step_before = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json row = parse(line, records_path);
    try {
      const double step = row.at("step"), samples = row.at("samples");
      const double of_a_step =
          (samples - samples_before) / (step - step_before);  // the mean per step, if not every step is logged
      if (!(step > step_before && samples > samples_before && row.at("step_ms").get<double>() > 0))
        throw UserError(
            fmt::format("{} has a step that is out of order or took no time: {}", records_path.string(), step),
            ExitCode::data);
      if (step > static_cast<double>(left_out))
        run.steps.push_back({.samples = of_a_step, .seconds = row.at("step_ms").get<double>() * 1e-3});
      samples_before = samples;
      step_before = step;
      if (row.at("loss").is_number()) run.last_loss = row.at("loss").get<double>();
    } catch (const Json::exception& error) {
      throw UserError(fmt::format("{} has a line that is not a step record: {}", records_path.string(), error.what()),
                      ExitCode::data);
    }
  }
  if (run.steps.empty())
    throw UserError(fmt::format("{} has no measured steps", records_path.string()), ExitCode::data);
  return run;
}

RunsComparison compare_runs(FinishedRun a, FinishedRun b, double level) {
  RunsComparison result;
  result.runs = {std::move(a), std::move(b)};
  result.level = level;
  const auto& [of_a, of_b] = result.runs;
  result.ratio = throughput(of_b.steps) / throughput(of_a.steps);
  result.interval = throughput_ratio_interval(of_a.steps, of_b.steps, level, 0);
  return result;
}

std::string runs_text(const RunsComparison& c) {
  std::string out = fmt::format("A  {}\nB  {}\n\nno verdict: B's throughput against A's is {}", c.runs[0].name,
                                c.runs[1].name, percent_faster(c.ratio));
  out += c.interval
             ? fmt::format(", {:g} % interval from step variation {}\n", 100 * c.level, percent_faster(*c.interval))
             : fmt::format(
                   "; no interval, because a run has fewer than {} measured steps or they are too strongly "
                   "autocorrelated\n",
                   EnoughPieces{}.pieces);
  for (const auto& [letter, run] : {std::pair('A', &c.runs[0]), std::pair('B', &c.runs[1])})
    out += fmt::format("  {:<13} {} samples/s over {} steps{}\n", letter, human_rate(throughput(run->steps)),
                       run->steps.size(),
                       run->last_loss ? fmt::format(", last loss {:.4f}", *run->last_loss) : std::string());
  return out + fmt::format("  {:<13} {}\n", "not paired", kNotPaired);
}

Json to_json(const RunsComparison& c) {
  Json json = {{"schema_version", 2},     {"verdict", Json()}, {"ratio", c.ratio}, {"interval", or_null(c.interval)},
               {"level", c.level},        {"blocks", Json()},  {"paired", false},  {"numerics", Json()},
               {"warnings", {kNotPaired}}};
  for (const auto& [letter, run] : {std::pair("a", &c.runs[0]), std::pair("b", &c.runs[1])})
    json["arms"][letter] = {{"name", run->name},
                            {"samples_per_s", throughput(run->steps)},
                            {"steps", run->steps.size()},
                            {"last_loss", or_null(run->last_loss)}};
  return json;
}

}  // namespace trainopt
