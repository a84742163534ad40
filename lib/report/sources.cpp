#include "report/sources.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/units.h"
#include "config/outline.h"
#include "config/problems.h"
#include "config/tree.h"
#include "config/write.h"
#include "report/lines.h"
#include "trace/analysis.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <optional>

namespace trainopt::report {
namespace {

constexpr int64_t kMaxJsonBytes = int64_t{256} << 20;

/// Columns of one series on a page with this many runs: the page must stay small.
size_t columns_for(size_t runs) {
  if (runs <= 1) return 1024;
  if (runs <= 4) return 512;
  return 128;
}

/// nullopt: it has no page. Other results than comparisons have arms, too, but say their kind.
std::optional<ResultKind> kind_of(const Json& result) {
  if (result.contains("switches")) return ResultKind::ablation;
  if (result.contains("each")) return ResultKind::several_arms;
  if (result.contains("no_verdict")) return ResultKind::against;
  if (result.contains("rates")) return ResultKind::rate_range;
  if (result.contains("arms") && !result.contains("kind")) return ResultKind::comparison;
  return std::nullopt;
}

/// For a result without a page: the command that made it, and the file to read instead.
[[noreturn]] void refuse_result(const std::filesystem::path& path, const Json& result) {
  const auto refuse = [&](const char* command, const char* file) {
    throw UserError(fmt::format("{} is the result of {}, which has no page; read {}", path.string(), command,
                                (path / file).string()),
                    ExitCode::data);
  };
  const Json kind = result.value("kind", Json());
  if (kind == "until") refuse("compare --until target", "report.txt");
  if (kind == "ablate until") refuse("ablate --until target", "report.txt");
  if (result.contains("steps") && result.contains("change")) refuse("tune", "steps.md");
  if (result.contains("sizes") && result.contains("largest")) refuse("find batch", "result.json");
  throw UserError(
      fmt::format("{}: result.json is not the result of compare, ablate or find lr, which alone have a page",
                  path.string()),
      ExitCode::data);
}

/// Whether there is such a file. One that is not a regular file, such as a pipe or a loop of links, is noted.
bool is_there(const std::filesystem::path& file, std::vector<std::string>& notes) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, error))) return false;
  if (std::filesystem::is_regular_file(file, error)) return true;
  notes.push_back(fmt::format("{} is not a regular file and was left out", file.filename().string()));
  return false;
}

/// The JSON in `file`. Null if there is no such file; null and a note if it cannot be read.
Json read_json(const std::filesystem::path& file, std::vector<std::string>& notes) {
  if (!is_there(file, notes)) return nullptr;
  try {
    Json json = parse_json(read_file(file, ExitCode::data, kMaxJsonBytes));
    if (json.is_object()) return json;
    notes.push_back(file.filename().string() + " is not a JSON object");
  } catch (const Json::exception& error) {
    notes.push_back(fmt::format("{} cannot be read: {}", file.filename().string(), json_problem(error)));
  } catch (const UserError& error) {
    notes.push_back(error.what());
  }
  return nullptr;
}

ResultFolder read_result(const std::filesystem::path& path) {
  ResultFolder folder{.path = path, .result = {}, .environment = {}, .notes = {}};
  folder.result = read_json(path / "result.json", folder.notes);
  if (!folder.result.is_object())
    throw UserError(fmt::format("{}: result.json is damaged: {}", path.string(),
                                folder.notes.empty() ? "it is not a JSON object" : folder.notes.front()),
                    ExitCode::data);
  folder.environment = read_json(path / "environment.json", folder.notes);
  const auto kind = kind_of(folder.result);
  if (!kind) refuse_result(path, folder.result);
  folder.kind = *kind;
  return folder;
}

/// "10-all" after "2a-pin-memory".
bool before_by_number(std::string_view left, std::string_view right) {
  const auto number = [](std::string_view text) {
    int64_t value = -1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const int64_t first = number(left), second = number(right);
  return first != second ? first < second : left < right;
}

std::vector<std::filesystem::path> runs_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> runs;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (is_run(entry.path())) runs.push_back(entry.path());
  std::sort(runs.begin(), runs.end(), [](const auto& left, const auto& right) {
    return before_by_number(left.filename().string(), right.filename().string());
  });
  return runs;
}

LadderFolder read_ladder(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& runs) {
  LadderFolder ladder{.path = folder, .rungs = {}};
  for (const auto& path : runs) {
    RunFolder run = read_run(path, columns_for(runs.size()));
    Json comparison = read_json(path / "compare.json", run.notes);
    ladder.rungs.push_back({std::move(run), std::move(comparison)});
  }
  return ladder;
}

}  // namespace

std::vector<Source> read_sources(const std::vector<std::filesystem::path>& folders) {
  std::vector<Source> sources;
  for (const auto& folder : folders) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error))
      throw UserError(fmt::format("{} is not a folder", folder.string()), ExitCode::data);
    if (std::filesystem::exists(folder / "result.json", error)) {
      sources.emplace_back(read_result(folder));
    } else if (is_run(folder)) {
      sources.emplace_back(read_run(folder, columns_for(folders.size())));
    } else if (const auto runs = runs_in(folder); !runs.empty()) {
      sources.emplace_back(read_ladder(folder, runs));
    } else {
      throw UserError(
          fmt::format("{} is neither a run directory nor the result of compare, ablate or find lr, and has no run "
                      "directories in it",
                      folder.string()),
          ExitCode::data);
    }
  }
  return sources;
}

namespace {

/// Larger traces take longer to analyse than a page should.
constexpr uintmax_t kMaxTraceBytes = uintmax_t{16} << 20;
constexpr double kFarthest = 1e15;  // a greater time or step is damage
constexpr size_t kMaxMessages = 50, kMaxFields = 4096, kMaxMessageBytes = 4096;

std::filesystem::path first_trace(const std::filesystem::path& folder) {
  std::filesystem::path result;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "trace", ignored))
    if (const auto name = entry.path().filename().string(); name.starts_with("rank0-step"))
      if (result.empty() || name < result.filename().string()) result = entry.path();
  return result;
}

/// What `trainopt profile` stored, or the analysis of the first trace of rank 0.
Json read_profile(const std::filesystem::path& folder, std::vector<std::string>& notes) {
  if (Json stored = read_json(folder / "profile.json", notes); !stored.is_null()) return stored;
  const auto trace = first_trace(folder);
  if (trace.empty()) return nullptr;
  std::error_code ignored;
  if (std::filesystem::file_size(trace, ignored) > kMaxTraceBytes) {
    notes.push_back(fmt::format("trace/{} is too large for this page; trainopt trace {} shows it",
                                trace.filename().string(), trace.string()));
    return nullptr;
  }
  try {
    return trace::analysis_json(trace::analyse_trace(trace));
  } catch (const UserError& error) {
    notes.push_back(error.what());
    return nullptr;
  }
}

Json read_recipe(const std::filesystem::path& file, std::vector<std::string>& notes) {
  if (!is_there(file, notes)) return nullptr;
  try {
    return json_of(parse_file(file));
  } catch (const UserError& error) {
    notes.push_back(fmt::format("recipe.yaml cannot be read: {}", error.what()));
    return nullptr;
  }
}

/// read_number_lines(), but what is wrong with the file becomes a note.
void read_leniently(const std::filesystem::path& file, std::vector<std::string>& notes,
                    const std::function<void(const NumberLine&)>& use) {
  if (!is_there(file, notes)) return;
  try {
    const LinesRead read = read_number_lines(file, use);
    if (const auto note = read.note(file.filename().string()); !note.empty()) notes.push_back(note);
  } catch (const UserError& error) {  // named recovery: the rest of the page does not need this file
    notes.push_back(error.what());
  }
}

/// Every numeric field of the file by `x_name`. Where x begins again, as the time of a resumed run does, it goes on
/// from the largest before.
std::vector<NamedColumns> read_columns(const std::filesystem::path& file, const std::string& x_name, size_t columns,
                                       std::vector<std::string>& notes) {
  std::vector<NamedColumns> result;
  double offset = 0, before = 0;
  read_leniently(file, notes, [&](const NumberLine& line) {
    while (result.size() < std::min(line.names.size(), kMaxFields))
      result.push_back({line.names[result.size()], Columns(columns)});
    const auto found = std::find(line.names.begin(), line.names.end(), x_name);
    if (found == line.names.end()) return;
    const auto x = line.values[static_cast<size_t>(found - line.names.begin())];
    if (!x || !(std::abs(*x) < kFarthest)) return;
    if (offset + *x < before) offset = before;
    before = offset + *x;
    for (size_t field = 0; field < std::min(line.values.size(), result.size()); ++field)
      if (line.values[field]) result[field].columns.add(before, *line.values[field]);
  });
  std::erase_if(result, [&](const NamedColumns& each) { return each.name == x_name; });
  return result;
}

std::vector<NamedColumns> read_ranks(const std::filesystem::path& folder, size_t columns,
                                     std::vector<std::string>& notes) {
  constexpr std::string_view kPrefix = "busy_ms.";
  auto result = read_columns(folder / "ranks.jsonl", "step", columns, notes);
  std::erase_if(result, [&](const NamedColumns& each) { return !each.name.starts_with(kPrefix); });
  for (auto& rank : result) rank.name = "rank " + rank.name.substr(kPrefix.size());
  return result;
}

std::vector<std::string> last_messages(const std::filesystem::path& file, std::vector<std::string>& notes) {
  std::deque<std::string> lines;
  if (!is_there(file, notes)) return {};
  const auto keep = [&](std::string_view line, size_t) {
    lines.emplace_back(line.substr(0, kMaxMessageBytes));
    if (lines.size() > kMaxMessages) lines.pop_front();
  };
  try {
    read_lines(file, 0, keep);
  } catch (const UserError& error) {  // named recovery: the rest of the page does not need this file
    notes.push_back(error.what());
  }
  return {lines.begin(), lines.end()};
}

int64_t integer_at(const Json& json, std::string_view path, int64_t otherwise) {
  const Json& value = at(json, path);
  return value.is_number() ? value.get<int64_t>() : otherwise;
}

/// The last step that does not count: a resumed run warms up again.
int64_t warmup_end(const Json& summary, const Json& recipe) {
  return integer_at(summary, "resumed_from", 0) +
         integer_at(summary, "left_out_steps", integer_at(recipe, "bench.warmup_steps", 0));
}

/// The steps that the summary counts: not the warm-up, and not those that the profiler slowed down.
std::function<bool(int64_t)> measured_steps(const Json& summary, const Json& recipe) {
  const int64_t warmup = warmup_end(summary, recipe);
  const int64_t profiled = integer_at(summary, "profiler.steps", 0);
  const int64_t wait = integer_at(recipe, "profiler.wait", 0);
  const int64_t cycle = wait + integer_at(recipe, "profiler.warmup", 0) + integer_at(recipe, "profiler.active", 0);
  const bool resumed = !at(summary, "resumed_from").is_null();  // then the profiler began later
  if (profiled == 0 || cycle <= 0 || resumed) return [=](int64_t step) { return step > warmup; };
  const int64_t cycles = integer_at(recipe, "profiler.repeat", 1);
  return [=](int64_t step) {
    const bool in_cycles = cycles == 0 || step <= cycles * cycle;
    return step > warmup && !(in_cycles && (step - 1) % cycle >= wait);
  };
}

}  // namespace

const Json& at(const Json& json, std::string_view path) {
  static const Json kNull;
  const size_t dot = path.find('.');
  const std::string_view key = path.substr(0, dot);
  const Json* found = &kNull;
  if (json.is_object()) {
    if (const auto item = json.find(key); item != json.end()) found = &*item;
  } else if (json.is_array()) {
    size_t index = json.size();
    std::from_chars(key.data(), key.data() + key.size(), index);
    if (index < json.size()) found = &json[index];
  }
  return dot == std::string_view::npos ? *found : at(*found, path.substr(dot + 1));
}

std::string folder_name(const std::filesystem::path& path) {
  const auto normal = std::filesystem::absolute(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

bool is_run(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return std::filesystem::exists(path / name, ignored); };
  return !has("result.json") && (has("summary.json") || has("metrics.jsonl") || has("plan.json"));
}

int64_t RunFolder::warmup_end() const { return report::warmup_end(summary, recipe); }

int64_t RunFolder::ranks() const { return integer_at(plan, "data.ranks", 1); }

std::string RunFolder::name() const {
  for (const Json* json : {&summary, &plan, &recipe})
    if (const Json& name = at(*json, "name"); name.is_string()) return name.get<std::string>();
  return folder_name(path);
}

RunFolder read_run(const std::filesystem::path& path, size_t columns) {
  std::vector<std::string> notes;
  Json summary = read_json(path / "summary.json", notes);
  Json recipe = read_recipe(path / "recipe.yaml", notes);
  StepRecords steps(columns, measured_steps(summary, recipe));
  read_leniently(path / "metrics.jsonl", notes, [&](const NumberLine& line) { steps.add(line); });

  if (steps.out_of_order() > 0)
    notes.push_back(
        fmt::format("metrics.jsonl: {} out of order and left out",
                    steps.out_of_order() == 1 ? "1 step is" : with_commas(steps.out_of_order()) + " steps are"));
  std::error_code ignored;
  if (!std::filesystem::exists(path / "metrics.jsonl", ignored))
    notes.push_back("there is no metrics.jsonl, so nothing can be drawn over time (logging.sinks: jsonl)");

  RunFolder run{.path = path,
                .summary = std::move(summary),
                .plan = {},
                .environment = {},
                .recipe = std::move(recipe),
                .profile = {},
                .steps = std::move(steps),
                .evaluations = {},
                .telemetry = {},
                .rank_ms = {},
                .messages = {},
                .notes = {}};
  run.plan = read_json(path / "plan.json", notes);
  run.environment = read_json(path / "environment.json", notes);
  run.profile = read_profile(path, notes);
  run.evaluations = read_columns(path / "evaluations.jsonl", "step", columns, notes);
  run.telemetry = read_columns(path / "telemetry.jsonl", "time_s", columns, notes);
  run.rank_ms = read_ranks(path, columns, notes);
  run.messages = last_messages(path / "run.log", notes);
  run.notes = std::move(notes);
  return run;
}

namespace {

const char* word_of(ResultKind kind) {
  switch (kind) {
    case ResultKind::comparison:
      return "comparison";
    case ResultKind::several_arms:
      return "comparison of several arms";
    case ResultKind::against:
      return "comparison with a stored result";
    case ResultKind::ablation:
      return "ablation";
    case ResultKind::rate_range:
      return "range test of the learning rate";
  }
  return "";
}

Json json_of(const RunFolder& run) {
  return {{"folder", run.path.string()},
          {"kind", "run"},
          {"name", run.name()},
          {"summary", run.summary},
          {"notes", run.notes}};
}

Json json_of(const ResultFolder& folder) {
  return {{"folder", folder.path.string()},
          {"kind", word_of(folder.kind)},
          {"result", folder.result},
          {"notes", folder.notes}};
}

Json json_of(const LadderFolder& ladder) {
  Json json = {{"folder", ladder.path.string()}, {"kind", "ladder"}, {"rungs", Json::array()}};
  for (const LadderFolder::Rung& rung : ladder.rungs) {
    json["rungs"].push_back(json_of(rung.run));
    json["rungs"].back()["against_previous"] = rung.against_previous;
  }
  return json;
}

}  // namespace

Json to_json(const std::vector<Source>& sources) {
  Json json = {{"schema_version", 1}, {"folders", Json::array()}};
  for (const Source& source : sources)
    json["folders"].push_back(std::visit([](const auto& folder) { return json_of(folder); }, source));
  return json;
}

}  // namespace trainopt::report
