#include "compare/output/table.h"

#include "base/error.h"

#include <algorithm>

namespace trainopt {
namespace {

constexpr size_t kMargin = 2, kGap = 3;

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

std::string wrapped(const std::string& text, size_t columns, size_t indent) {
  std::string out;
  size_t used = 0;  // columns of the current line
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (used > indent && used + 1 + width(word) > columns) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (begin > 0) {
      out += ' ';
      ++used;
    }
    out += word;
    used += width(word);
    begin = end + 1;
  }
  return out;
}

std::string labelled(const std::string& name, const std::string& value, const TextStyle& style) {
  constexpr size_t kIndent = 16, kLeastRoom = 24;
  const std::string line = fmt::format("  {:<13} {}", name, value);
  return (style.columns < kIndent + kLeastRoom ? line : wrapped(line, style.columns, kIndent)) + "\n";
}

std::string Table::text(const TextStyle& style) const {
  std::vector<size_t> widths;
  for (size_t column = 0; column < heads_.size(); ++column) {
    widths.push_back(width(heads_[column]));
    for (const Row& row : rows_) widths.back() = std::max(widths.back(), width(row[column].text));
  }
  std::string out;
  for (size_t column = 1; column < heads_.size();) {
    std::vector<size_t> together{0};
    size_t used = kMargin + widths[0];
    do {
      used += kGap + widths[column];
      together.push_back(column++);
    } while (column < heads_.size() && used + kGap + widths[column] <= style.columns);
    out += (out.empty() ? "" : "\n\n") + text_of(together, widths, style.color);
  }
  return out;
}

std::string Table::text_of(const std::vector<size_t>& columns, const std::vector<size_t>& widths, bool color) const {
  const auto space = [](size_t column) { return std::string(column == 0 ? kMargin : kGap, ' '); };
  std::string out;
  for (const size_t column : columns) out += space(column) + padded(heads_[column], widths[column]);
  for (const Row& row : rows_) {
    out += "\n";
    for (const size_t column : columns) {
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
