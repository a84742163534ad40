// What the tests read back from drawn charts.
#pragma once

#include "base/json.h"
#include "support/catch.h"

#include <string>
#include <vector>

namespace trainopt::report {

inline size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

/// The JSON in the figure.
inline Json embedded(const std::string& html) {
  const std::string begin = "<script type=\"application/json\">";
  const size_t from = html.find(begin);
  REQUIRE(from != std::string::npos);
  return parse_json(html.substr(from + begin.size(), html.find("</script>", from) - from - begin.size()));
}

/// No drawing contains what a number that is not finite would be written as.
inline void check_drawn(const std::string& html) {
  for (const char* bad : {"nan%", "inf%", "\"nan", "\"inf", "-nan", "-inf", ">nan", ">inf"}) {
    INFO(bad);
    CHECK(html.find(bad) == std::string::npos);
  }
  CHECK(count_of(html, "<figure") == 1);
  CHECK(count_of(html, "</figure>") == 1);
}

}  // namespace trainopt::report
