#include "config/edit.h"

#include "config/tree.h"

#include <algorithm>

namespace trainopt {
namespace {

using Parts = std::vector<std::string>;

Parts parts_of_key(const std::string& key) {
  Parts parts;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    parts.push_back(key.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The byte at a line and column, both from 1; columns count characters. npos: the text has no such place.
size_t offset_of(const std::string& text, const Mark& mark) {
  size_t at = 0;
  for (int line = 1; line < mark.line; ++line) {
    at = text.find('\n', at);
    if (at == std::string::npos) return at;
    ++at;
  }
  for (int column = 1; column < mark.column && at < text.size(); ++column)
    at += std::max<size_t>(1, utf8_length(std::string_view(text).substr(at)));
  return mark.line > 0 ? at : std::string::npos;
}

size_t line_begin(const std::string& text, size_t at) {
  const size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return before == std::string::npos ? 0 : before + 1;
}

/// Where the quoted or bracketed text that begins at `at` ends; npos: on another line, or never.
size_t end_of_inline(const std::string& text, size_t at) {
  const std::string_view closing = text[at] == '[' ? "]" : text[at] == '{' ? "}" : std::string_view(&text[at], 1);
  int depth = 0;
  for (char quote = 0; at < text.size() && text[at] != '\n'; ++at) {
    const char c = text[at];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
    if (quote == 0 && depth == 0 && closing.front() == c) return at + 1;
  }
  return std::string::npos;
}

/// The bytes of a value that stands on one line.
std::optional<std::pair<size_t, size_t>> range_of(const std::string& text, const Value& value) {
  const size_t begin = offset_of(text, value.mark);
  if (begin == std::string::npos || begin >= text.size()) return std::nullopt;
  size_t end = std::string::npos;
  if (text[begin] == '[' || text[begin] == '{' || text[begin] == '"' || text[begin] == '\'')
    end = end_of_inline(text, begin);
  else if (value.is_scalar() && !value.text.empty() && text.compare(begin, value.text.size(), value.text) == 0)
    end = begin + value.text.size();
  return end == std::string::npos ? std::nullopt : std::optional(std::pair(begin, end));
}

/// "data:\n  batch_size: 8\n" of its parts and value.
std::string as_block(const Parts& parts, size_t first, const std::string& indent, const std::string& value) {
  std::string text, spaces = indent;
  for (size_t i = first; i < parts.size(); ++i, spaces += "  ")
    text += fmt::format("{}{}:{}\n", spaces, parts[i], i + 1 < parts.size() ? "" : " " + value);
  return text;
}

/// "wrap: {policy: size}" of its parts and value.
std::string as_flow(const Parts& parts, size_t first, const std::string& value) {
  std::string text = value;
  for (size_t i = parts.size(); i-- > first;)
    text = i == first ? fmt::format("{}: {}", parts[i], text) : fmt::format("{{{}: {}}}", parts[i], text);
  return text;
}

class Editor {
 public:
  Editor(std::string text, const Outline& outline) : text_(std::move(text)), outline_(outline) {}

  const std::string& text() const { return text_; }

  bool change(const std::string& key, const std::string& value, const std::string& comment) {
    const Value root = parse_recipe(text_, "recipe");
    const Parts parts = parts_of_key(key);
    const Value* at = &root;
    const Outline* options = &outline_;
    size_t depth = 0;
    for (; depth < parts.size() && at->is_map(); ++depth) {
      const Option* option = find_option(options_of_map(*options, *at), parts[depth]);
      const Value* inside = value_of(*at, *options, parts[depth]);
      if (inside == nullptr) break;
      at = inside;
      if (option != nullptr) options = &option->options;
    }
    if (depth == parts.size()) return replace(*at, value, comment);
    if (!at->is_map()) return replace(*at, fmt::format("{{{}}}", as_flow(parts, depth, value)), comment);
    return add(*at, at == &root, parts, depth, value, comment);
  }

 private:
  /// The value of an option under its own name or another.
  static const Value* value_of(const Value& map, const Outline& options, const std::string& name) {
    const auto siblings = options_of_map(options, map);
    const Option* wanted = find_option(siblings, name);
    for (size_t i = 0; i < map.keys.size(); ++i)
      if (map.keys[i].name == name || (wanted != nullptr && find_option(siblings, map.keys[i].name) == wanted))
        return &map.items[i];
    return nullptr;
  }

  bool replace(const Value& old, const std::string& value, const std::string& comment) {
    const auto range = range_of(text_, old);
    if (!range) return false;
    text_.replace(range->first, range->second - range->first, value);
    add_comment(range->first, comment);
    return true;
  }

  bool add(const Value& map, bool is_root, const Parts& parts, size_t depth, const std::string& value,
           const std::string& comment) {
    const size_t begin = offset_of(text_, map.mark);
    if (begin != std::string::npos && begin < text_.size() && text_[begin] == '{') {
      const std::string more = map.items.empty() ? "" : ", ";
      text_.insert(begin + 1, as_flow(parts, depth, value) + more);
      add_comment(begin, comment);
      return true;
    }
    if (is_root) {
      if (!text_.empty() && text_.back() != '\n') text_ += '\n';
      const size_t end = text_.size();
      text_ += as_block(parts, depth, "", value);
      add_comment(text_.size() - 1, comment, end);
      return true;
    }
    const size_t first = map.keys.empty() ? std::string::npos : offset_of(text_, map.keys.front().mark);
    if (first == std::string::npos) return false;
    const size_t line = line_begin(text_, first);
    const std::string indent = text_.substr(line, first - line);
    if (indent.find_first_not_of(' ') != std::string::npos) return false;
    text_.insert(line, as_block(parts, depth, indent, value));
    add_comment(line, comment);
    return true;
  }

  /// Above the line of `at`, or at `place`.
  void add_comment(size_t at, const std::string& comment, std::optional<size_t> place = std::nullopt) {
    if (comment.empty()) return;
    const size_t line = place.value_or(line_begin(text_, at));
    const size_t indent = text_.find_first_not_of(' ', line);
    text_.insert(line, fmt::format("{}# {}\n", std::string(indent - line, ' '), comment));
  }

  std::string text_;
  const Outline& outline_;
};

}  // namespace

std::optional<std::string> edited(std::string text, const std::vector<std::string>& changes,
                                  const std::map<std::string, std::string>& comments, const Outline& outline) {
  Editor editor(std::move(text), outline);
  for (const std::string& change : changes) {
    const size_t begin = change.starts_with("--") ? 2 : 0, equals = change.find('=');
    const std::string key = change.substr(begin, equals - begin);
    const auto comment = comments.find(key);
    if (!editor.change(key, change.substr(equals + 1), comment == comments.end() ? "" : comment->second))
      return std::nullopt;
  }
  return editor.text();
}

}  // namespace trainopt
