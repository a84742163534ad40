#include "app/words/by_name.h"

#include "config/leads.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>
#include <string_view>

namespace trainopt {
namespace embedded {
extern const std::string_view kByName;  // guide/by-name.md
}  // namespace embedded

namespace {

/// The cells of a row of a Markdown table.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream row(line.substr(1));
  for (std::string cell; std::getline(row, cell, '|');) {
    const size_t begin = cell.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    cells.push_back(cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin));
  }
  return cells;
}

/// Without code marks, and of a link its text alone.
std::string plain_text(std::string_view cell) {
  std::string text;
  for (size_t at = 0; at < cell.size(); ++at) {
    if (cell[at] == '`' || cell[at] == '[') continue;
    if (cell.substr(at).starts_with("](")) {
      at = std::min(cell.find(')', at), cell.size());
      continue;
    }
    text += cell[at];
  }
  return text;
}

/// What stands between code marks.
std::vector<std::string> code_in(std::string_view cell) {
  std::vector<std::string> all;
  for (size_t begin; (begin = cell.find('`')) != std::string_view::npos;) {
    const size_t end = std::min(cell.find('`', begin + 1), cell.size());
    all.emplace_back(cell.substr(begin + 1, end - begin - 1));
    cell.remove_prefix(std::min(end + 1, cell.size()));
  }
  return all;
}

/// Lower-case words with the signs that are no letters, digits or dots as spaces: " torch.compile " of
/// "`torch.compile`".
std::string words_of(std::string_view text) {
  std::string words = " ";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_part = std::isalnum(byte) != 0 || byte >= 0x80 || c == '.' || c == '+';
    if (is_part)
      words += static_cast<char>(std::tolower(byte));
    else if (words.back() != ' ')
      words += ' ';
  }
  return words.back() == ' ' ? words : words + ' ';
}

/// Whether the name has each of the words, as a whole one or within another.
bool has_all(const std::string& name, const std::string& words, bool whole) {
  std::istringstream each(words);
  const std::string in = words_of(name);
  return std::all_of(std::istream_iterator<std::string>(each), {}, [&](const std::string& word) {
    constexpr size_t kLeastLetters = 3;  // fewer are within too many words
    return whole ? in.find(" " + word + " ") != std::string::npos
                 : word.size() >= kLeastLetters && in.find(word) != std::string::npos;
  });
}

}  // namespace

std::vector<KnownAs> known_as() {
  std::vector<KnownAs> rows;
  std::istringstream lines{std::string(embedded::kByName)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('|') || line.starts_with("|-") || line.starts_with("| known as")) continue;
    const auto cells = cells_of(line);
    if (cells.size() < 2) continue;
    KnownAs row{.names = {}, .here = plain_text(cells[1]), .keys = {}};
    std::istringstream names(plain_text(cells[0]));
    for (std::string name; std::getline(names, name, ',');)
      row.names.push_back(name.substr(name.find_first_not_of(' ')));
    for (const std::string& code : code_in(cells[1]))
      if (code.find(' ') == std::string::npos || code.find(": ") != std::string::npos)
        row.keys.push_back(code.substr(0, code.find(':')));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<KnownAs> known_as(const std::string& words) {
  const std::string wanted = words_of(words);
  std::vector<KnownAs> found;
  for (const bool whole : {true, false}) {
    for (const KnownAs& row : known_as())
      if (std::any_of(row.names.begin(), row.names.end(),
                      [&](const std::string& name) { return has_all(name, wanted, whole); }))
        found.push_back(row);
    if (!found.empty()) break;
  }
  return found;
}

}  // namespace trainopt
