// Text for a terminal, and tables for a terminal or a Markdown page.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// ANSI colour codes, the part between "ESC [" and "m".
inline constexpr std::string_view kRed = "31", kGreen = "32", kDim = "2", kBold = "1";
std::string colored(const std::string& text, std::string_view color_code);

/// How a text looks on a terminal.
struct TextStyle {
  static constexpr size_t kAnyWidth = std::numeric_limits<size_t>::max();

  TextStyle(bool in_color = false, size_t of_columns = kAnyWidth) : color(in_color), columns(of_columns) {}

  bool color;
  size_t columns;  ///< a line that has more is broken between words, and a table between columns
};

/// "  name          value" and a newline. Lines after the first are indented to the value.
std::string labelled(const std::string& name, const std::string& value, const TextStyle& style);
/// The text in lines that are not too long, the later ones indented. A word that is longer stays whole.
std::string wrapped(const std::string& text, size_t columns, size_t indent = 0);

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

  /// Columns padded to the same width, without a newline at the end. Columns for which a line has no room follow in
  /// further tables, each with the first column.
  std::string text(const TextStyle& style) const;
  /// The text has no newline at its end.
  std::string markdown() const;

 private:
  std::string text_of(const std::vector<size_t>& columns, const std::vector<size_t>& widths, bool color) const;

  std::vector<std::string> heads_;
  size_t labels_;
  std::vector<Row> rows_;
};

}  // namespace trainopt
