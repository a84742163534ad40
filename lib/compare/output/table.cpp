#include "compare/output/table.h"

#include "base/error.h"

#include <algorithm>

namespace trainopt {
namespace {

/// Number of code points, which is the width on a terminal of the characters used here.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t to_width) { return text + std::string(to_width - width(text), ' '); }

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '|' ? std::string("\\|") : std::string(1, c);
  return safe;
}

}  // namespace

std::string colored(const std::string& text, std::string_view color_code) {
  return fmt::format("\x1b[{}m{}\x1b[0m", color_code, text);
}

void Table::add(Row row) {
  TRAINOPT_CHECK(row.size() <= heads_.size());
  row.resize(heads_.size());
  rows_.push_back(std::move(row));
}

std::string Table::text(bool color) const {
  std::vector<size_t> widths;
  for (size_t column = 0; column < heads_.size(); ++column) {
    widths.push_back(width(heads_[column]));
    for (const Row& row : rows_) widths.back() = std::max(widths.back(), width(row[column].text));
  }
  const auto space = [](size_t column) { return column == 0 ? "  " : "   "; };
  std::string out;
  for (size_t column = 0; column < heads_.size(); ++column)
    out += space(column) + padded(heads_[column], widths[column]);
  for (const Row& row : rows_) {
    out += "\n";
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string cell = padded(row[column].text, widths[column]);
      out += space(column) + (color && !row[column].color.empty() ? colored(cell, row[column].color) : cell);
    }
    out.erase(out.find_last_not_of(' ') + 1);
  }
  return out;
}

std::string Table::markdown() const {
  std::string out = "|";
  for (const auto& head : heads_) out += fmt::format(" {} |", head);
  out += "\n|";
  for (size_t column = 0; column < heads_.size(); ++column) out += column < labels_ ? "---|" : "--:|";
  for (const Row& row : rows_) {
    out += "\n|";
    for (const Cell& cell : row) out += fmt::format(" {} |", escaped(cell.text));
  }
  return out;
}

}  // namespace trainopt
