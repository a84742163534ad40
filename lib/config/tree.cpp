#include "config/tree.h"

#include "base/files/files.h"
#include "config/leads.h"
#include "config/plain_text.h"
#include "config/problems.h"

#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

namespace trainopt {
namespace {

/// Limits of one source.
constexpr size_t kMaxRecipeBytes = size_t{1} << 20;
constexpr int kMaxDepth = 64;
constexpr size_t kMaxNodes = 100'000;              // with aliases expanded
constexpr size_t kMaxTextBytes = size_t{4} << 20;  // bytes of all scalars and keys, with aliases expanded
constexpr size_t kMaxMarks = 2 * kMaxNodes;        // [ ] { } , :

/// Throws RecipeErrors with this one problem, which belongs to no key.
[[noreturn]] void fail_at(const Mark& mark, const std::string& message) {
  throw RecipeErrors({{to_text(mark), "", message}});
}

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
    if (const auto cause = misleading_text(text, counts_lines ? error.mark.line + 1 : 1))
      fail_at(counts_lines ? Mark{source.source, cause->line, cause->column} : source, cause->message);
    fail_at(builder.mark_of(error.mark), "not valid YAML: " + error.msg);
  }
  if (!builder.has_root()) fail_at(source, "is empty");
  return builder.take();
}

}  // namespace

Value parse_recipe(const std::string& text, const std::string& name) {
  const Mark source{std::make_shared<const std::string>(name)};
  Value root = parse(text, source, true);
  if (root.is_null()) fail_at(source, "is empty");
  if (!root.is_map()) fail_at(root.mark, "a recipe must be a map of 'key: value': " + display_text(root));
  return root;
}

Value parse_file(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path, ExitCode::recipe, static_cast<int64_t>(kMaxRecipeBytes));
  } catch (const UserError& error) {
    throw RecipeErrors({{"", "", error.what()}});
  }
  return parse_recipe(text, path.string());
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
  const std::string_view written = edit.substr(equals + 1);
  // In YAML a * begins the name of an anchor, of which an override has none; here it begins a pattern such as *.tar.
  Value value = written.starts_with('*') ? quoted(std::string(written)) : parse(written, source, false);
  value.mark = source;

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

/// Until the parser reaches the end, an unclosed bracket looks like a list used as a key, so that error is thrown here.
Value TreeBuilder::take() {
  if (odd_key_) fail_at(*odd_key_, "a key must be a plain word, not a list or map");
  return std::move(root_);
}

Mark TreeBuilder::mark_of(const YAML::Mark& mark) const {
  return counts_lines_ && !mark.is_null() ? Mark{source_.source, mark.line + 1, mark.column + 1} : source_;
}

void TreeBuilder::OnDocumentStart(const YAML::Mark& mark) {
  if (++documents_ == 1) return;
  if (text_from(mark).starts_with("---"))
    fail_at(mark_of(mark), "a second document starts here; a recipe is one document");
  fail_at(mark_of(mark), "this does not continue the lines above; check the indentation");
}

void TreeBuilder::OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) {
  if (expects_key()) fail_at(mark_of(mark), "a key is missing or null");
  Value value;
  value.mark = open_.empty() || !open_.back().value.is_map() ? mark_of(mark) : open_.back().value.keys.back().mark;
  const std::string_view written = text_from(mark);
  if (written.starts_with('~') || folded(written.substr(0, 4)) == "null") value.text = "null";
  count(0, mark_of(mark));
  if (anchor != 0) anchors_[anchor] = value;
  add(std::move(value));
}

void TreeBuilder::OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                           const std::string& text) {
  check_tag(mark, tag);
  check_text(mark, text);
  count(text.size(), mark_of(mark));
  if (expects_key()) return add_key(mark, text, tag == "!");
  Value value;
  value.kind = Value::Kind::scalar;
  value.mark = mark_of(mark);
  value.text = text;
  value.quoted = tag == "!";
  if (anchor != 0) anchors_[anchor] = value;
  add(std::move(value));
}

void TreeBuilder::OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) {
  if (expects_key()) fail_at(mark_of(mark), "a key must be a plain word, not an alias");
  const auto found = anchors_.find(anchor);
  if (found == anchors_.end()) fail_at(mark_of(mark), "an alias inside the value that it refers to");
  count_copy(found->second, mark_of(mark), static_cast<int>(open_.size()));
  add(found->second);
}

std::string_view TreeBuilder::text_from(const YAML::Mark& mark) const {
  return mark.pos >= 0 && static_cast<size_t>(mark.pos) < text_.size() ? text_.substr(static_cast<size_t>(mark.pos))
                                                                       : std::string_view();
}

/// The parser tags plain scalars "?" and quoted ones "!". An explicit `!` also arrives as "!".
void TreeBuilder::check_tag(const YAML::Mark& mark, const std::string& tag) const {
  std::string_view written = text_from(mark);
  if (written.starts_with('&')) {
    written.remove_prefix(std::min(written.find_first_of(" \t\r\n"), written.size()));
    written.remove_prefix(std::min(written.find_first_not_of(" \t\r\n"), written.size()));
  }
  if ((tag != "?" && tag != "!" && !tag.empty()) || (tag == "!" && written.starts_with('!')))
    fail_at(mark_of(mark),
            "tags are not allowed in a recipe: " + display_text(written.substr(0, written.find_first_of(" \t\r\n"))));
}

/// The parser turns the escapes \N and \_ into single bytes, which are not UTF-8.
void TreeBuilder::check_text(const YAML::Mark& mark, std::string_view text) const {
  if (text.find('\0') != std::string::npos) fail_at(mark_of(mark), "a string must not contain a NUL byte");
  for (size_t length; !text.empty(); text.remove_prefix(length))
    if ((length = utf8_length(text)) == 0)
      fail_at(mark_of(mark), fmt::format("an escape produces a byte that is not UTF-8: 0x{:02X}",
                                         static_cast<unsigned char>(text[0])));
}

bool TreeBuilder::expects_key() const {
  return !open_.empty() && open_.back().value.is_map() &&
         open_.back().value.keys.size() == open_.back().value.items.size();
}

void TreeBuilder::add_key(const YAML::Mark& mark, const std::string& name, bool is_quoted) {
  if (name == "<<" && !is_quoted)
    fail_at(mark_of(mark), "merge keys (<<) are not allowed in a recipe; give several recipe files instead");
  const auto [first, is_new] = open_.back().seen.emplace(name, mark_of(mark));
  if (!is_new)
    fail_at(mark_of(mark), fmt::format("the key {} is given twice{}", display_text(name),
                                       counts_lines_ ? fmt::format(", first in line {}", first->second.line) : ""));
  open_.back().value.keys.push_back({name, mark_of(mark)});
}

void TreeBuilder::open(Value::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
  check_tag(mark, tag);
  if (expects_key() && !odd_key_) odd_key_ = mark_of(mark);
  count(0, mark_of(mark));
  if (open_.size() >= kMaxDepth) fail_at(mark_of(mark), fmt::format("nested more than {} levels deep", kMaxDepth));
  Open& opened = open_.emplace_back();
  opened.value.kind = kind;
  opened.value.mark = mark_of(mark);
  opened.anchor = anchor;
}

void TreeBuilder::close() {
  Open closed = std::move(open_.back());
  open_.pop_back();
  if (closed.anchor != 0) {
    count_copy(closed.value, closed.value.mark, 0);  // nested anchors would otherwise multiply the memory
    anchors_[closed.anchor] = closed.value;
  }
  add(std::move(closed.value));
}

void TreeBuilder::add(Value value) {
  if (expects_key()) return;  // odd_key_, which take() reports
  if (open_.empty())
    root_ = std::move(value);
  else
    open_.back().value.items.push_back(std::move(value));
}

void TreeBuilder::count(size_t text_bytes, const Mark& mark) {
  if (++nodes_ > kMaxNodes) fail_at(mark, fmt::format("more than {} values, with aliases expanded", kMaxNodes));
  if ((text_bytes_ += text_bytes) > kMaxTextBytes)
    fail_at(mark, fmt::format("more than {} bytes of text, with aliases expanded", kMaxTextBytes));
}

void TreeBuilder::count_copy(const Value& value, const Mark& mark, int depth) {
  if (depth > kMaxDepth) fail_at(mark, fmt::format("nested more than {} levels deep", kMaxDepth));
  count(value.text.size(), mark);
  for (const Value::Key& key : value.keys) count(key.name.size(), mark);
  for (const Value& item : value.items) count_copy(item, mark, depth + 1);
}

size_t utf8_length(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                        : (first & 0xF0) == 0xE0         ? 3
                        : first >= 0xF0 && first <= 0xF4 ? 4
                                                         : 0;
  if (length == 0 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

}  // namespace trainopt
