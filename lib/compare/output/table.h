// A table for a terminal or a Markdown page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// ANSI colour codes, the part between "ESC [" and "m".
inline constexpr std::string_view kRed = "31", kGreen = "32", kDim = "2", kBold = "1";
std::string colored(const std::string& text, std::string_view color_code);

class Table {
 public:
  struct Cell {
    std::string text;
    std::string_view color = {};  ///< empty: none
  };
  using Row = std::vector<Cell>;

  /// In Markdown the columns after the first `labels` are right-aligned.
  Table(std::vector<std::string> heads, size_t labels) : heads_(std::move(heads)), labels_(labels) {}

  /// Missing cells at the end are empty.
  void add(Row row);

  /// Columns padded to the same width, without a newline at the end.
  std::string text(bool color) const;
  /// The text has no newline at its end.
  std::string markdown() const;

 private:
  std::vector<std::string> heads_;
  size_t labels_;
  std::vector<Row> rows_;
};

}  // namespace trainopt
