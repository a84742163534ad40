#include "app/report_page.h"

#include "app/explain.h"
#include "app/version.h"
#include "base/files.h"
#include "recipe/recipe_io.h"
#include "report/compose.h"

#include <fmt/chrono.h>
#include <spdlog/spdlog.h>

#include <ctime>

namespace trainopt {

void write_report(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& page,
                  std::optional<int> reload_s) {
  const report::Context context{.default_recipe = recipe_json(Recipe{}),
                                .written_by = fmt::format("trainopt {} ({})", kBuild.version, kBuild.commit),
                                .written_at = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr))),
                                .reload_s = reload_s};
  write_file(page, report::draw(report::compose(report::read_sources(folders), context)));
}

void write_own_report(const std::filesystem::path& folder) {
  try {
    write_report({folder}, folder / "report.html");
  } catch (const std::exception& error) {  // named recovery: the result itself is complete
    spdlog::warn("report.html was not written: {}", explain(error).message);
  }
}

}  // namespace trainopt
