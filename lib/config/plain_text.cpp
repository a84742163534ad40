#include "config/plain_text.h"

#include "config/outline.h"
#include "config/tree.h"

#include <fmt/format.h>

#include <array>
#include <cctype>

namespace trainopt {
namespace {

constexpr const char* kVariables =
    "recipes do not expand variables; write the value, or give it on the command line, where the shell expands it: ";

/// "${LR}", "$LR" or "$(pwd)"; empty: there is none.
std::string_view variable_in(std::string_view text) {
  for (size_t at = 0; (at = text.find('$', at)) != std::string_view::npos; ++at) {
    const char next = at + 1 < text.size() ? text[at + 1] : ' ';
    if (next == '{') return text.substr(at, text.find('}', at) - at + 1);
    if (next == '(') return text.substr(at, text.find(')', at) - at + 1);
    if (std::isalpha(static_cast<unsigned char>(next)) == 0 && next != '_') continue;
    size_t end = at + 1;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    return text.substr(at, end - at);
  }
  return {};
}

struct OddSpace {
  std::string_view bytes, name;
};
constexpr std::array kOddSpaces = {
    OddSpace{"\xC2\xA0", "a no-break space (U+00A0)"}, OddSpace{"\xE2\x80\xAF", "a no-break space (U+202F)"},
    OddSpace{"\xE2\x80\x8B", "an invisible space (U+200B)"}, OddSpace{"\xE3\x80\x80", "a wide space (U+3000)"}};

std::string odd_space_in(std::string_view text) {
  for (const auto& [bytes, name] : kOddSpaces)
    if (text.find(bytes) != std::string_view::npos)
      return fmt::format("has {}, which YAML takes for a letter; write a space, or quote the text", name);
  return "";
}

bool is_in_home(const Value& value) { return value.text.starts_with("~/"); }

/// Why a value is no plain one; empty: it is.
std::string fault_of(const Value& value, const std::string& path, const std::string& home) {
  if (!value.is_scalar()) return "";
  if (!value.quoted)
    if (const std::string space = odd_space_in(value.text); !space.empty())
      return fmt::format("{}: {}", space, display_text(value));
  if (!variable_in(value.text).empty()) return fmt::format("{}{}=VALUE: {}", kVariables, path, display_text(value));
  if (is_in_home(value) && home.empty()) return "HOME is not set, so ~ stands for no folder: " + display_text(value);
  return "";
}

/// False, after adding a problem, if the value is to be taken out.
bool made_plain(Value& value, const std::string& path, const std::string& home, std::vector<Problem>& problems) {
  if (const std::string fault = fault_of(value, path, home); !fault.empty()) {
    problems.push_back(problem_in(value.mark, path, fault));
    return false;
  }
  if (value.is_scalar() && is_in_home(value)) value.text.replace(0, 1, home);
  if (value.items.empty()) return true;
  Value kept;
  kept.kind = value.kind;
  kept.mark = value.mark;
  for (size_t i = 0; i < value.items.size(); ++i) {
    const Value::Key* key = value.is_map() ? &value.keys[i] : nullptr;
    const std::string item = key ? join_path(path, display_text(key->name)) : fmt::format("{}[{}]", path, i);
    const std::string space = key ? odd_space_in(key->name) : "";
    if (!space.empty())
      problems.push_back(problem_in(key->mark, item, space));
    else if (made_plain(value.items[i], item, home, problems)) {
      kept.items.push_back(std::move(value.items[i]));
      if (key) kept.keys.push_back(*key);
    }
  }
  value = std::move(kept);
  return true;
}

/// The column of the byte at `at`: characters before it, and one.
int column_of(std::string_view line, size_t at) {
  int column = 1;
  for (size_t i = 0; i < at; i += std::max<size_t>(1, utf8_length(line.substr(i)))) ++column;
  return column;
}

}  // namespace

void make_plain(Value& map, const std::string& home, std::vector<Problem>& problems) {
  made_plain(map, "", home, problems);
}

std::optional<Misleading> misleading_text(std::string_view text, int line) {
  std::optional<Misleading> last;
  for (int number = 1; number <= line && !text.empty(); ++number) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(whole.size() + 1, text.size()));
    const std::string_view code = whole.substr(0, whole.starts_with('#') ? 0 : whole.find(" #"));
    const size_t indent = code.find_first_not_of(" \t");
    if (const size_t tab = code.substr(0, indent).find('\t'); tab != std::string_view::npos)
      last = {number, column_of(whole, tab), "this line is indented with a tab; YAML takes spaces only"};
    for (const OddSpace& space : kOddSpaces)
      if (const size_t at = code.find(space.bytes); at != std::string_view::npos)
        last = {number, column_of(whole, at),
                fmt::format("{}, which YAML takes for a letter; write a space", space.name)};
    if (const size_t at = code.find("${"); at != std::string_view::npos)
      last = {number, column_of(whole, at), fmt::format("{}KEY=VALUE: {}", kVariables, variable_in(code.substr(at)))};
  }
  return last;
}

}  // namespace trainopt
