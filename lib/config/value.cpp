#include "config/value.h"

#include "config/tree.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {

std::string to_text(const Mark& mark) {
  if (!mark.source) return "";
  return mark.line == 0 ? *mark.source : fmt::format("{}:{}:{}", *mark.source, mark.line, mark.column);
}

const Value* Value::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].name == key) return &items[i];
  return nullptr;
}

Value& Value::find_or_add(const Key& key) {
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

std::string display_text(std::string_view text) {
  constexpr size_t kMaxLength = 80;
  if (text.empty()) return "''";
  size_t end = 0;
  while (end < text.size() && end < kMaxLength) end += std::max<size_t>(1, utf8_length(text.substr(end)));
  std::string one_line(text.substr(0, end));
  std::replace_if(
      one_line.begin(), one_line.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return one_line + (end < text.size() ? "…" : "");
}

std::string display_text(const Value& value) {
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
  return value.quoted && !value.text.empty() ? "\"" + display_text(value.text) + "\"" : display_text(value.text);
}

}  // namespace trainopt
