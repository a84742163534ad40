#include "run/report_page.h"

#include "base/files/files.h"
#include "base/files/held_folder.h"
#include "base/log.h"
#include "checkpoint/run_lock.h"
#include "recipe/recipe_io.h"
#include "report/compose.h"
#include "run/explain.h"
#include "run/version.h"

#include <fmt/chrono.h>

#include <ctime>
#include <fstream>

namespace trainopt {

namespace {

/// A page replaces only a page, never a device or somebody's data.
void refuse_other_file(const std::filesystem::path& page) {
  std::error_code ignored;
  const auto status = std::filesystem::status(page, ignored);
  if (!std::filesystem::exists(status)) return;
  if (!std::filesystem::is_regular_file(status))
    throw UserError(fmt::format("the page cannot be written: {} is not a regular file", page.string()),
                    ExitCode::storage);
  constexpr std::string_view kBegin = "<!doctype html>";
  std::string begin(kBegin.size(), '\0');
  std::ifstream(page, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (begin != kBegin && std::filesystem::file_size(page, ignored) > 0)
    throw UserError(
        fmt::format("the page cannot be written: {} exists and is not a page; choose another --out", page.string()),
        ExitCode::storage);
}

report::Page composed(const std::vector<std::filesystem::path>& folders, const report::Context& context) {
  try {
    return report::compose(report::read_sources(folders), context);
  } catch (const Json::exception& error) {
    throw UserError(
        fmt::format("a JSON file of {} has unexpected content: {}", folders.front().string(), json_problem(error)),
        ExitCode::data);
  }
}

}  // namespace

void write_report(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& page,
                  std::optional<int> reload_s) {
  const report::Context context{.default_recipe = recipe_json(Recipe{}),
                                .written_by = fmt::format("trainopt {} ({})", kBuild.version, kBuild.commit),
                                .written_at = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr))),
                                .reload_s = reload_s,
                                .running = any_is_running(folders)};
  refuse_other_file(page);
  write_file(page, report::draw(composed(folders, context)));
}

bool any_is_running(const std::vector<std::filesystem::path>& folders) {
  std::error_code ignored;
  for (const auto& folder : folders) {
    if (is_locked(folder)) return true;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
      if (entry.is_directory(ignored) && is_locked(entry.path())) return true;
  }
  return false;
}

void write_own_report(const std::filesystem::path& name) {
  try {
    const auto folder = path_for_others(name);
    write_report({folder}, folder / "report.html");
  } catch (const std::exception& error) {  // named recovery: the result itself is complete
    log_warning("report.html was not written: {}", explain(error).message);
  }
}

}  // namespace trainopt
