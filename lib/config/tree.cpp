#include "config/tree.h"

#include "base/files.h"
#include "config/problems.h"
#include "config/tree_builder.h"
#include "config/utf8.h"

#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

namespace trainopt {
namespace {

/// Rejects text that is not printable UTF-8, which the parser does not check.
void check_bytes(std::string_view text, Mark mark, bool counts_lines) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) fail_at(mark, "is UTF-16; save it as UTF-8");
  int line = 1, column = 1;
  for (size_t i = 0; i < text.size();) {
    const auto here = [&] { return counts_lines ? Mark{mark.source, line, column} : mark; };
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = utf8_length(text.substr(i));
    if (length == 0) fail_at(here(), fmt::format("is not UTF-8: byte 0x{:02X}", byte));
    if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F)
      fail_at(here(), fmt::format("control byte 0x{:02X}; a recipe must be plain text", byte));
    i += length;
    ++column;
    if (byte == '\n') ++line, column = 1;
  }
}

Value parse(std::string_view text, const Mark& source, bool counts_lines) {
  if (text.size() > kMaxRecipeBytes)
    fail_at(source, fmt::format("is too large: {} bytes, at most {}", text.size(), kMaxRecipeBytes));
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  check_bytes(text, source, counts_lines);
  // Inside an open bracket the parser buffers all tokens until it closes, 240 bytes each, before TreeBuilder's limits
  // apply to any of them.
  const auto marks = std::count_if(text.begin(), text.end(),
                                   [](char c) { return std::string_view("[]{},:").find(c) != std::string_view::npos; });
  if (static_cast<size_t>(marks) > kMaxMarks)
    fail_at(source, fmt::format("more than {} brackets, commas and colons", kMaxMarks));
  TreeBuilder builder(text, source, counts_lines);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    fail_at(builder.mark_of(error.mark), "not valid YAML: " + error.msg);
  }
  if (!builder.has_root()) fail_at(source, "is empty");
  return builder.take();
}

}  // namespace

Value parse_file(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path, ExitCode::recipe, static_cast<int64_t>(kMaxRecipeBytes));
  } catch (const UserError& error) {
    throw RecipeErrors({{"", "", error.what()}});
  }
  return parse_text(text, path.string());
}

Value parse_text(std::string_view text, const std::string& name) {
  const Mark source{std::make_shared<const std::string>(name)};
  Value root = parse(text, source, true);
  if (root.is_null()) fail_at(source, "is empty");
  if (!root.is_map()) fail_at(root.mark, "a recipe must be a map of 'key: value': " + display_text(root));
  return root;
}

Value parse_override(const std::string& text) {
  std::string_view edit = text;
  if (edit.starts_with("--")) edit.remove_prefix(2);
  const Mark source{std::make_shared<const std::string>("command line '" + display_text(text) + "'")};
  check_bytes(text, source, false);
  const size_t equals = edit.find('=');
  if (equals == std::string_view::npos) fail_at(source, "an override is written key=value");
  const std::string key(edit.substr(0, equals));
  if (edit.size() == equals + 1)
    fail_at(source, fmt::format("no value; write '{}=null' for the default or '{}=\"\"' for an empty string",
                                display_text(key), display_text(key)));
  Value value = parse(edit.substr(equals + 1), source, false);

  int depth = 0;
  for (size_t end = key.size(); true;) {  // from the last part of the path to the first
    const size_t dot = key.substr(0, end).rfind('.');
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    if (begin == end) fail_at(source, "a part of the key is empty");
    if (++depth > kMaxDepth) fail_at(source, fmt::format("nested more than {} levels deep", kMaxDepth));
    Value outer = empty_map();
    outer.mark = source;
    outer.find_or_add({key.substr(begin, end - begin), source}) = std::move(value);
    value = std::move(outer);
    if (dot == std::string::npos) return value;
    end = dot;
  }
}

}  // namespace trainopt
