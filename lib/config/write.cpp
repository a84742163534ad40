#include "config/write.h"

#include <algorithm>

namespace trainopt {
namespace {

/// Whether every YAML 1.1 and 1.2 reader takes this unquoted text for a string.
bool is_safe_unquoted(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (text.empty() || !(letter(text[0]) || text[0] == '/' || text[0] == '_')) return false;
  for (const char c : text)
    if (!letter(c) && !(c >= '0' && c <= '9') && std::string_view("_-./+").find(c) == std::string_view::npos)
      return false;
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
    if (lower == word) return false;
  return true;
}

std::string in_quotes(std::string_view text) {
  std::string quotes = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      quotes += std::string("\\") + c;
    else if (c == '\n')
      quotes += "\\n";
    else if (c == '\t')
      quotes += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      quotes += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      quotes += c;
  }
  return quotes + '"';
}

std::string scalar_text(const Value& scalar) {
  return scalar.quoted && !is_safe_unquoted(scalar.text) ? in_quotes(scalar.text) : scalar.text;
}

void write_block(const Value& map, int indent, std::string& text) {
  const std::string spaces(static_cast<size_t>(indent), ' ');
  for (size_t i = 0; i < map.keys.size(); ++i) {
    const Value& item = map.items[i];
    text += spaces + map.keys[i].name + ":";
    if (item.is_map() && !item.keys.empty()) {
      text += "\n";
      write_block(item, indent + 2, text);
    } else if (item.is_list() &&
               std::any_of(item.items.begin(), item.items.end(), [](const Value& one) { return one.is_map(); })) {
      text += "\n";
      for (const Value& one : item.items) text += spaces + "  - " + flow_text(one) + "\n";
    } else {
      text += " " + flow_text(item) + "\n";
    }
  }
}

}  // namespace

Value value_of(const Outline& outline) {
  Value map = empty_map();
  for (const Option& option : outline) {
    switch (option.kind) {
      case Option::Kind::value:
        map.set(option.name, option.write());
        break;
      case Option::Kind::section:
        map.set(option.name, value_of(option.options));
        break;
      case Option::Kind::toggle:
        map.set(option.name, *option.on && !option.options.empty() ? value_of(option.options)
                                                                   : plain(*option.on ? "true" : "false"));
        break;
      case Option::Kind::variant: {
        map.set(option.name, quoted(option.alternatives[option.current()].name));
        const Value own = value_of(option.select(option.current()));
        for (size_t i = 0; i < own.keys.size(); ++i) map.set(own.keys[i].name, own.items[i]);
      }
    }
  }
  return map;
}

std::string flow_text(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::scalar:
      return scalar_text(value);
    case Value::Kind::list: {
      std::string text;
      for (const Value& item : value.items) text += (text.empty() ? "" : ", ") + flow_text(item);
      return "[" + text + "]";
    }
    case Value::Kind::map: {
      std::string text;
      for (size_t i = 0; i < value.keys.size(); ++i)
        text += (i == 0 ? "" : ", ") + value.keys[i].name + ": " + flow_text(value.items[i]);
      return "{" + text + "}";
    }
  }
  throw BrokenInvariant("a value of no kind");
}

std::string yaml_text(const Value& map) {
  if (map.keys.empty()) return "{}\n";
  std::string text;
  write_block(map, 0, text);
  return text;
}

Json json_of(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return nullptr;
    case Value::Kind::scalar: {
      if (value.quoted) return value.text;
      if (const auto boolean = parse_boolean(value.text)) return *boolean;
      if (const auto integer = parse_integer(value.text)) return *integer;
      if (const auto number = parse_number(value.text)) return *number;
      return value.text;
    }
    case Value::Kind::list: {
      Json list = Json::array();
      for (const Value& item : value.items) list.push_back(json_of(item));
      return list;
    }
    case Value::Kind::map: {
      Json map = Json::object();
      for (size_t i = 0; i < value.keys.size(); ++i) map[value.keys[i].name] = json_of(value.items[i]);
      return map;
    }
  }
  throw BrokenInvariant("a value of no kind");
}

}  // namespace trainopt
