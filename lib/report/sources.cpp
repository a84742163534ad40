#include "report/sources.h"

#include "base/error.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace trainopt::report {
namespace {

/// Columns of one series on a page with this many runs: the page must stay small.
size_t columns_for(size_t runs) {
  if (runs <= 1) return 1024;
  if (runs <= 4) return 512;
  return 128;
}

/// nullopt: it has no page. Other results than comparisons have arms, too, but say their kind.
std::optional<ResultKind> kind_of(const Json& result) {
  if (result.contains("switches")) return ResultKind::ablation;
  if (result.contains("each")) return ResultKind::rotation;
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

bool before_by_number(std::string_view left, std::string_view right) {
  const auto number = [](std::string_view text) {
    int64_t value = -1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const int64_t first = number(left), second = number(right);
  return first != second ? first < second : left < right;
}

}  // namespace trainopt::report
