#include "config/tree.h"

#include "base/files.h"
#include "config/problems.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>

namespace trainopt {
namespace {

[[noreturn]] void fail(const Mark& mark, const std::string& message) {
  throw RecipeErrors({{to_text(mark), "", message}});
}

/// Length of the UTF-8 sequence at the start of `bytes`; 0 if it is not valid (overlong, surrogate, too large, cut).
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

/// The parser takes bytes as they come; a recipe is printable UTF-8.
void check_bytes(std::string_view text, Mark mark, bool counts_lines) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) fail(mark, "is UTF-16; save it as UTF-8");
  int line = 1, column = 1;
  for (size_t i = 0; i < text.size();) {
    const auto here = [&] { return counts_lines ? Mark{mark.source, line, column} : mark; };
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = utf8_length(text.substr(i));
    if (length == 0) fail(here(), fmt::format("is not UTF-8: byte 0x{:02X}", byte));
    if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F)
      fail(here(), fmt::format("control byte 0x{:02X}", byte));
    i += length;
    ++column;
    if (byte == '\n') ++line, column = 1;
  }
}

/// Builds the tree from the parser's events, so that limits hold while parsing and not after.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, Mark source, bool counts_lines)
      : text_(text), source_(std::move(source)), counts_lines_(counts_lines) {}

  /// After the last event. An unclosed bracket looks like a list as a key until the parser meets the end, so that one
  /// waits.
  Value take() {
    if (odd_key_) fail(*odd_key_, "a key must be a plain word, not a list or map");
    return std::move(root_);
  }
  bool has_root() const { return documents_ > 0; }

  Mark mark_of(const YAML::Mark& mark) const {
    return counts_lines_ && !mark.is_null() ? Mark{source_.source, mark.line + 1, mark.column + 1} : source_;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    if (text_from(mark).starts_with("---"))
      fail(mark_of(mark), "a second document starts here; a recipe is one document");
    fail(mark_of(mark), "this does not continue what is above; check the indentation");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (expects_key()) fail(mark_of(mark), "a key is missing or null");
    Value value;
    value.mark = open_.empty() || !open_.back().value.is_map() ? mark_of(mark) : open_.back().value.keys.back().mark;
    count(0, mark_of(mark));
    if (anchor != 0) anchors_[anchor] = value;
    add(std::move(value));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
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

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (expects_key()) fail(mark_of(mark), "a key must be a plain word, not an alias");
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(mark_of(mark), "an alias inside the value that it names");
    count_copy(found->second, mark_of(mark), static_cast<int>(open_.size()));
    add(found->second);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Value::Kind::list, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Value::Kind::map, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Value value;
    YAML::anchor_t anchor;
    std::unordered_map<std::string, Mark> seen;  // keys of a map; a linear search would be quadratic on hostile files
  };

  std::string_view text_from(const YAML::Mark& mark) const {
    return mark.pos >= 0 && static_cast<size_t>(mark.pos) < text_.size() ? text_.substr(static_cast<size_t>(mark.pos))
                                                                         : std::string_view();
  }

  /// The parser calls plain scalars "?" and quoted ones "!", which is also what an explicit `!` looks like.
  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    std::string_view written = text_from(mark);
    if (written.starts_with('&')) {
      written.remove_prefix(std::min(written.find_first_of(" \t\r\n"), written.size()));
      written.remove_prefix(std::min(written.find_first_not_of(" \t\r\n"), written.size()));
    }
    if ((tag != "?" && tag != "!" && !tag.empty()) || (tag == "!" && written.starts_with('!')))
      fail(mark_of(mark),
           "tags are not allowed in a recipe: " + shown(written.substr(0, written.find_first_of(" \t\r\n"))));
  }

  /// The parser makes single bytes of the escapes \N and \_, which are no UTF-8.
  void check_text(const YAML::Mark& mark, std::string_view text) const {
    if (text.find('\0') != std::string::npos) fail(mark_of(mark), "a text must not contain a NUL byte");
    for (size_t length; !text.empty(); text.remove_prefix(length))
      if ((length = utf8_length(text)) == 0)
        fail(mark_of(mark),
             fmt::format("an escape gives a byte that is not UTF-8: 0x{:02X}", static_cast<unsigned char>(text[0])));
  }

  bool expects_key() const {
    return !open_.empty() && open_.back().value.is_map() &&
           open_.back().value.keys.size() == open_.back().value.items.size();
  }

  void add_key(const YAML::Mark& mark, const std::string& name, bool is_quoted) {
    if (name == "<<" && !is_quoted)
      fail(mark_of(mark), "merge keys (<<) are not allowed in a recipe; give several recipe files instead");
    const auto [first, is_new] = open_.back().seen.emplace(name, mark_of(mark));
    if (!is_new)
      fail(mark_of(mark), fmt::format("the key {} is given twice{}", shown(name),
                                      counts_lines_ ? fmt::format(", first in line {}", first->second.line) : ""));
    open_.back().value.keys.push_back({name, mark_of(mark)});
  }

  void open(Value::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    check_tag(mark, tag);
    if (expects_key() && !odd_key_) odd_key_ = mark_of(mark);
    count(0, mark_of(mark));
    if (open_.size() >= kDeepest) fail(mark_of(mark), fmt::format("nested more than {} deep", kDeepest));
    Open& opened = open_.emplace_back();
    opened.value.kind = kind;
    opened.value.mark = mark_of(mark);
    opened.anchor = anchor;
  }

  void close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    if (closed.anchor != 0) {
      count_copy(closed.value, closed.value.mark, 0);  // anchors in anchors would otherwise multiply the memory
      anchors_[closed.anchor] = closed.value;
    }
    add(std::move(closed.value));
  }

  void add(Value value) {
    if (expects_key()) return;  // the odd key, which take() reports
    if (open_.empty())
      root_ = std::move(value);
    else
      open_.back().value.items.push_back(std::move(value));
  }

  void count(size_t text_bytes, const Mark& mark) {
    if (++nodes_ > kMostNodes) fail(mark, fmt::format("more than {} values, aliases counted in full", kMostNodes));
    if ((text_bytes_ += text_bytes) > kMostText)
      fail(mark, fmt::format("more than {} bytes of text, aliases counted in full", kMostText));
  }

  void count_copy(const Value& value, const Mark& mark, int depth) {
    if (depth > kDeepest) fail(mark, fmt::format("nested more than {} deep", kDeepest));
    count(value.text.size(), mark);
    for (const Value::Key& key : value.keys) count(key.name.size(), mark);
    for (const Value& item : value.items) count_copy(item, mark, depth + 1);
  }

  std::string_view text_;
  Mark source_;
  bool counts_lines_;
  Value root_;
  std::vector<Open> open_;
  std::optional<Mark> odd_key_;
  std::map<YAML::anchor_t, Value> anchors_;  // complete ones only, so that an alias cannot be inside its own anchor
  int documents_ = 0;
  size_t nodes_ = 0, text_bytes_ = 0;
};

Value parse(std::string_view text, const Mark& source, bool counts_lines) {
  if (text.size() > kLargestFile)
    fail(source, fmt::format("is too large: {} bytes, at most {}", text.size(), kLargestFile));
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  check_bytes(text, source, counts_lines);
  // Inside an open bracket the parser keeps all tokens until it closes, 240 bytes each, before our limits see any of
  // them.
  const auto marks = std::count_if(text.begin(), text.end(),
                                   [](char c) { return std::string_view("[]{},:").find(c) != std::string_view::npos; });
  if (static_cast<size_t>(marks) > kMostMarks)
    fail(source, fmt::format("more than {} brackets, commas and colons", kMostMarks));
  TreeBuilder builder(text, source, counts_lines);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    fail(builder.mark_of(error.mark), "not valid YAML: " + error.msg);
  }
  if (!builder.has_root()) fail(source, "is empty");
  return builder.take();
}

}  // namespace

std::string to_text(const Mark& mark) {
  if (!mark.source) return "";
  return mark.line == 0 ? *mark.source : fmt::format("{}:{}:{}", *mark.source, mark.line, mark.column);
}

const Value* Value::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].name == key) return &items[i];
  return nullptr;
}

Value& Value::at_or_added(const Key& key) {
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].name == key.name) {
      keys[i].mark = key.mark;
      return items[i];
    }
  keys.push_back(key);
  return items.emplace_back();
}

void Value::erase(std::string_view key) {
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].name == key) {
      keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(i));
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
}

Value plain(std::string text) {
  Value value;
  value.kind = Value::Kind::scalar;
  value.text = std::move(text);
  return value;
}

Value quoted(std::string text) {
  Value value = plain(std::move(text));
  value.quoted = true;
  return value;
}

Value list_of(std::vector<Value> items) {
  Value value;
  value.kind = Value::Kind::list;
  value.items = std::move(items);
  return value;
}

Value empty_map() {
  Value value;
  value.kind = Value::Kind::map;
  return value;
}

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 80;
  if (text.empty()) return "''";
  size_t end = 0;
  while (end < text.size() && end < kLongest) end += std::max<size_t>(1, utf8_length(text.substr(end)));
  std::string one_line(text.substr(0, end));
  std::replace_if(
      one_line.begin(), one_line.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return one_line + (end < text.size() ? "…" : "");
}

std::string shown(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::list:
      return "a list";
    case Value::Kind::map:
      return "a map";
    case Value::Kind::scalar:
      break;
  }
  return value.quoted && !value.text.empty() ? "\"" + shown(value.text) + "\"" : shown(value.text);
}

Value parse_file(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path, ExitCode::recipe, static_cast<int64_t>(kLargestFile));
  } catch (const UserError& error) {
    throw RecipeErrors({{"", "", error.what()}});
  }
  return parse_text(text, path.string());
}

Value parse_text(std::string_view text, const std::string& name) {
  const Mark source{std::make_shared<const std::string>(name)};
  Value root = parse(text, source, true);
  if (root.is_null()) fail(source, "is empty");
  if (!root.is_map()) fail(root.mark, "a recipe must be a map of 'key: value': " + shown(root));
  return root;
}

Value parse_override(const std::string& text) {
  std::string_view edit = text;
  if (edit.starts_with("--")) edit.remove_prefix(2);
  const Mark source{std::make_shared<const std::string>("command line '" + shown(text) + "'")};
  check_bytes(text, source, false);
  const size_t equals = edit.find('=');
  if (equals == std::string_view::npos) fail(source, "an override is written key=value");
  const std::string key(edit.substr(0, equals));
  if (edit.size() == equals + 1)
    fail(source,
         fmt::format("no value; '{}=null' restores the default, '{}=\"\"' is an empty text", shown(key), shown(key)));
  Value value = parse(edit.substr(equals + 1), source, false);

  int depth = 0;
  for (size_t end = key.size(); true;) {  // from the last part of the path to the first
    const size_t dot = key.substr(0, end).rfind('.');
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    if (begin == end) fail(source, "a part of the key is empty");
    if (++depth > kDeepest) fail(source, fmt::format("nested more than {} deep", kDeepest));
    Value outer = empty_map();
    outer.mark = source;
    outer.at_or_added({key.substr(begin, end - begin), source}) = std::move(value);
    value = std::move(outer);
    if (dot == std::string::npos) return value;
    end = dot;
  }
}

}  // namespace trainopt
