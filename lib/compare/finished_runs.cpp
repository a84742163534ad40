#include "compare/finished_runs.h"

#include "base/files/files.h"
#include "compare/json_values.h"
#include "compare/output/comparison_text.h"
#include "metrics/format.h"

#include <locale>
#include <sstream>

namespace trainopt {
namespace {

constexpr const char* kNotPaired =
    "the runs did not take turns, so this ratio includes whatever else changed on the machine between them, and no "
    "interval accounts for it; for a verdict, run trainopt compare on their recipes";

Json parse(const std::string& text, const std::filesystem::path& path) {
  try {
    return parse_json(text);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("{} is not JSON: {}", path.string(), json_problem(error)), ExitCode::data);
  }
}

/// step_times.csv: a header, then samples and seconds of each piece.
std::vector<Piece> read_step_times(const std::filesystem::path& path) {
  std::istringstream lines(read_file(path, ExitCode::data));
  std::string line;
  std::getline(lines, line);
  std::vector<Piece> pieces;
  for (int64_t number = 2; std::getline(lines, line); ++number) {
    Piece piece;
    char comma = 0;
    std::istringstream words(line);
    words.imbue(std::locale::classic());
    if (!(words >> piece.samples >> comma >> piece.seconds) || comma != ',' || !(piece.samples > 0) ||
        !(piece.seconds > 0))
      throw UserError(
          fmt::format("{}, line {}: must be samples,seconds, both above 0: {}", path.string(), number, line),
          ExitCode::data);
    pieces.push_back(piece);
  }
  return pieces;
}

/// The logged steps only: of a run by an earlier version, which wrote no step_times.csv.
void read_records(const std::filesystem::path& path, int64_t excluded_steps, FinishedRun& run) {
  std::istringstream lines(read_file(path, ExitCode::data));
  double samples_before = 0, step_before = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json row = parse(line, path);
    try {
      const double step = row.at("step"), samples = row.at("samples");
      const double samples_per_step = (samples - samples_before) / (step - step_before);  // not every step is logged
      if (!(step > step_before && samples > samples_before && row.at("step_ms").get<double>() > 0))
        throw UserError(fmt::format("{} has a step that is out of order or took no time: {}", path.string(), step),
                        ExitCode::data);
      if (step > static_cast<double>(excluded_steps))
        run.steps.push_back({.samples = samples_per_step, .seconds = row.at("step_ms").get<double>() * 1e-3});
      samples_before = samples;
      step_before = step;
      if (row.at("loss").is_number()) run.last_loss = row.at("loss").get<double>();
    } catch (const Json::exception& error) {
      throw UserError(fmt::format("{} has a line that is not a step record: {}", path.string(), json_problem(error)),
                      ExitCode::data);
    }
  }
  run.measured_steps = static_cast<int64_t>(run.steps.size());
}

}  // namespace

FinishedRun read_finished_run(const std::filesystem::path& run_dir) {
  const auto summary_path = run_dir / "summary.json", times_path = run_dir / "step_times.csv";
  const Json summary = parse(read_file(summary_path, ExitCode::data), summary_path);
  FinishedRun run{.name = run_dir.string(), .steps = {}, .measured_steps = 0, .last_loss = {}};
  if (std::filesystem::exists(times_path)) {
    run.steps = read_step_times(times_path);
    run.measured_steps = summary.value("measured_steps", static_cast<int64_t>(run.steps.size()));
    const Json loss = summary.value("loss", Json::object()).value("last", Json());
    if (loss.is_number()) run.last_loss = loss.get<double>();
  } else {
    read_records(run_dir / "metrics.jsonl", summary.value("left_out_steps", int64_t{0}), run);
  }
  if (run.steps.empty()) throw UserError(fmt::format("{} has no measured steps", run_dir.string()), ExitCode::data);
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
                       run->measured_steps,
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
                            {"steps", run->measured_steps},
                            {"last_loss", or_null(run->last_loss)}};
  return json;
}

}  // namespace trainopt
