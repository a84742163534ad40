// Pieces of HTML as strings. Only this file and the charts write tags around text that comes from elsewhere, so that
// all of it is escaped.
#pragma once

#include "base/json.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt::report {

/// Complete, escaped HTML. Concatenate these freely; never build one from text except through the functions below.
using Html = std::string;

/// `text` with U+FFFD for bytes that are not UTF-8, for control characters other than tab and newline, and for those
/// that change the direction of text (bidi overrides). Not escaped.
std::string safe_text(std::string_view text);
/// safe_text() for use between tags and in quoted attributes.
Html escape(std::string_view text);

struct Attribute {
  std::string_view name;
  std::string value;  ///< not escaped yet
};
/// <tag name="value">inner</tag>; `tag` and attribute names are the caller's own words.
Html element(std::string_view tag, std::initializer_list<Attribute> attributes, const Html& inner);
Html element(std::string_view tag, const Html& inner);

/// A number or text of the page that a script can read: <data data-key="KEY" data-value="VALUE">TEXT</data>.
/// `value` is written as JSON writes it (a string without quotes), so that it equals the source's; null becomes
/// data-value="null" and an en dash, or `text` if that is given.
Html figure(std::string_view key, const Json& value, std::string_view text);

/// <script type="application/json"> with `json`, in which nothing can end the script.
Html embedded_json(const Json& json);

/// A table whose cells are Html. Columns marked `number` are aligned to the right.
struct Table {
  struct Column {
    std::string title;
    bool number = false;
  };
  std::string caption;  ///< for screen readers; not shown
  std::vector<Column> columns;
  std::vector<std::vector<Html>> rows;
  size_t shown = 1000;  ///< later rows are behind a "show all" switch that needs no script (<details>)
};
Html draw(const Table& table);

}  // namespace trainopt::report
