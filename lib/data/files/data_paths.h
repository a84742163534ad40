// What `data.path` and `evaluation.path` name: a file or a folder, or several. Each may be a pattern.
#pragma once

#include "config/form.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct DataPaths {
  DataPaths() = default;
  DataPaths(std::string path) : all{std::move(path)} {}                 // NOLINT: a path is the usual case of several
  DataPaths(const char* path) : all{path} {}                            // NOLINT
  DataPaths(const std::filesystem::path& path) : all{path.string()} {}  // NOLINT
  explicit DataPaths(std::vector<std::string> paths) : all(std::move(paths)) {}
  bool operator==(const DataPaths&) const = default;

  std::vector<std::string> all;  ///< empty only where there is no data

  /// The paths for messages: "a.bin, b.bin".
  std::string text() const;
  /// The path, for formats that read one file or one folder. Throws UserError if there are several, or a pattern that
  /// is not the name of a file.
  const std::string& only(std::string_view format) const;
  /// Whether any of them is in object storage.
  bool is_remote() const;
};

/// A path, or a list of paths.
template <>
struct Form<DataPaths> {
  static std::string type_text();
  static Json schema(const Bounds& bounds);
  static std::optional<DataPaths> read(const Value& value, const Location& location);
  static Value write(const DataPaths& paths);
};

}  // namespace trainopt
