#include "data/files/data_paths.h"

#include "base/error.h"
#include "storage/path_kind.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace trainopt {

std::string DataPaths::text() const { return fmt::format("{}", fmt::join(all, ", ")); }

const std::string& DataPaths::only(std::string_view format) const {
  if (all.size() != 1)
    throw UserError(fmt::format("{} reads one file or folder, not several: {}", format, text()), ExitCode::data);
  std::error_code unreadable;
  if (is_pattern(all.front()) && !std::filesystem::exists(all.front(), unreadable))
    throw UserError(
        fmt::format("{} reads one file or folder, whose name must be given without a pattern: {}", format, all.front()),
        ExitCode::data);
  return all.front();
}

bool DataPaths::is_remote() const {
  return std::any_of(all.begin(), all.end(), [](const std::string& path) { return trainopt::is_remote(path); });
}

std::string Form<DataPaths>::type_text() { return "string or list of strings"; }

Json Form<DataPaths>::schema(const Bounds& bounds) {
  const Json one = Form<std::string>::schema(bounds);
  return {{"anyOf", Json::array({one, Json{{"type", "array"}, {"items", one}, {"minItems", 1}}})}};
}

std::optional<DataPaths> Form<DataPaths>::read(const Value& value, const Location& location) {
  if (!value.is_list()) {
    auto path = Form<std::string>::read(value, location);
    if (path) return DataPaths(std::move(*path));
    return std::nullopt;
  }
  auto paths = Form<std::vector<std::string>>::read(value, location);
  if (!paths) return std::nullopt;
  if (!paths->empty()) return DataPaths(std::move(*paths));
  location.problem(value, "must name at least one path");
  return std::nullopt;
}

Value Form<DataPaths>::write(const DataPaths& paths) {
  return paths.all.size() == 1 ? Form<std::string>::write(paths.all.front())
                               : Form<std::vector<std::string>>::write(paths.all);
}

}  // namespace trainopt
