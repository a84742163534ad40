// The files of a data set's folders that it does not read, for one line that says so.
#pragma once

#include "base/json.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt {

class LeftOut {
 public:
  /// `kind`: ".webp file", to be counted; `remark` follows the first name of the kind.
  void add(std::string_view kind, std::string_view name, std::string_view remark = "");
  /// A file, whose kind is its ending: letters and perhaps digits. AppleDouble files (._NAME), which macOS adds, are a
  /// kind of their own.
  void add_file(std::string_view name);
  void add(const LeftOut& others);
  bool empty() const { return groups_.empty(); }
  bool has(const std::string& kind) const { return groups_.contains(kind); }
  /// "2 .webp files (a/2.webp, ...), 1 hidden folder (.cache, ...)", the most frequent first, each with the first name
  /// in bytewise order.
  std::string text() const;
  /// [{"kind", "count", "first", "why"}].
  Json json() const;

 private:
  friend LeftOut left_out_from(const Json& json);
  struct Group {
    std::string first, remark;
    int64_t count = 0;
  };
  using Kind = std::pair<std::string, Group>;
  void add(const std::string& kind, const Group& group);
  std::vector<Kind> by_count() const;

  std::map<std::string, Group> groups_;
};

/// What json() wrote. Throws nlohmann's exceptions.
LeftOut left_out_from(const Json& json);

/// Whether macOS's archivers and file servers made the file, beside NAME, for what is no part of it.
bool is_apple_double(std::string_view name);
/// The ending from the last dot of a file's name on, in lower case; empty without one.
std::string ending_of(std::string_view name);

}  // namespace trainopt
