#include "config/leads.h"

#include "base/error.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <unordered_map>

namespace trainopt {
namespace embedded {
extern const std::string_view kLeads;  // leads.txt
}  // namespace embedded

namespace {

struct Table {
  std::vector<Lead> leads;
  std::vector<OtherTool> tools;
  std::unordered_map<std::string, size_t> by_word;
  std::vector<size_t> beginnings;  ///< leads whose word ends in *
};

/// "train.max_steps or train.epochs" in its parts.
std::vector<std::string> divided(std::string_view text) {
  constexpr std::string_view kOr = " or ";
  std::vector<std::string> parts;
  for (size_t at; (at = text.find(kOr)) != std::string_view::npos; text.remove_prefix(at + kOr.size()))
    parts.emplace_back(text.substr(0, at));
  parts.emplace_back(text);
  return parts;
}

/// A line at the margin: what stands there, and the note in parentheses at its end.
std::pair<std::string, std::string> divided_head(const std::string& line) {
  const size_t note = line.ends_with(')') ? line.find(" (") : std::string::npos;
  if (note == std::string::npos) return {line, ""};
  return {line.substr(0, note), line.substr(note + 2, line.size() - note - 3)};
}

Table read_table() {
  constexpr std::string_view kNone = "none: ", kTool = "tool ";
  Table table;
  std::istringstream lines{std::string(embedded::kLeads)};
  std::string head, note, reason;
  bool is_tool = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    if (!line.starts_with(' ')) {
      reason = line.starts_with(kNone) ? line.substr(kNone.size()) : "";
      std::tie(head, note) = reason.empty() ? divided_head(line) : std::pair(std::string(), reason);
      is_tool = head.starts_with(kTool);
      if (is_tool) table.tools.push_back({head.substr(kTool.size()), note, {}});
      continue;
    }
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (is_tool) {
        table.tools.back().words.push_back(word);
        continue;
      }
      const bool is_value = word.find('=') != std::string::npos, leads_on = reason.empty();
      table.by_word.emplace(word, table.leads.size());
      if (word.ends_with('*')) table.beginnings.push_back(table.leads.size());
      table.leads.push_back({.theirs = word,
                             .paths = leads_on && !is_value ? divided(head) : std::vector<std::string>(),
                             .value = leads_on && is_value ? head : "",
                             .note = note});
    }
  }
  return table;
}

const Table& table() {
  static const Table all = read_table();
  return all;
}

const Lead* lead_of_word(const std::string& word) {
  const auto found = table().by_word.find(word);
  return found == table().by_word.end() ? nullptr : &table().leads[found->second];
}

/// The last part of "trainer.optim.args".
std::string last_part(const std::string& path) { return folded(path.substr(path.rfind('.') + 1)); }
/// "optim.args" of "trainer.optim.args".
std::string last_two_parts(const std::string& path) {
  const size_t last = path.rfind('.');
  if (last == std::string::npos || last == 0) return folded(path);
  return folded(path.substr(path.rfind('.', last - 1) + 1));
}

}  // namespace

const std::vector<Lead>& all_leads() { return table().leads; }

std::string folded(std::string_view word) {
  std::string text(word);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(c == '-' || c == ' ' ? '_' : std::tolower(c)); });
  return text;
}

const Lead* lead_of_key(const std::string& section, std::string_view key) {
  const std::string word = folded(key);
  if (!section.empty())
    if (const Lead* of_section = lead_of_word(last_part(section) + "." + word)) return of_section;
  if (const Lead* alone = lead_of_word(word)) return alone;
  for (const size_t each : table().beginnings)
    if (const Lead& lead = table().leads[each]; word.starts_with(lead.theirs.substr(0, lead.theirs.size() - 1)))
      return &lead;
  return nullptr;
}

const Lead* lead_of_value(const std::string& path, std::string_view value) {
  if (const Lead* as_written = lead_of_word(path + "=" + std::string(value))) return as_written;
  return lead_of_word(path + "=" + folded(value));
}

const OtherTool* tool_of(const std::vector<std::string>& unknown) {
  const auto is_among = [](const std::string& path, const std::vector<std::string>& words) {
    const std::string key = last_part(path), with_section = last_two_parts(path);
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& word) { return word == key || word == with_section; });
  };
  const OtherTool* best = nullptr;
  int64_t most = 1;
  for (const OtherTool& tool : table().tools) {
    const int64_t count = std::count_if(unknown.begin(), unknown.end(),
                                        [&](const std::string& path) { return is_among(path, tool.words); });
    if (count > most) best = &tool, most = count;
  }
  return best;
}

}  // namespace trainopt
