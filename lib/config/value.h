// A parsed recipe as a tree of values, with the location of each; independent of the YAML library.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// Where something was written. `line` and `column` count from 1; both are 0 if `source` is enough (an override).
struct Mark {
  std::shared_ptr<const std::string> source;
  int line = 0, column = 0;
};
std::string to_text(const Mark& mark);  ///< "recipe.yaml:3:7" or "command line 'seed=x'"

struct Value {
  enum class Kind { null, scalar, list, map };
  struct Key {
    std::string name;
    Mark mark;
  };

  Kind kind = Kind::null;
  Mark mark;
  std::string text;          ///< a scalar's text; "null" for a null that is written out
  bool quoted = false;       ///< a scalar in quotes or a block: never a number, bool or null
  std::vector<Value> items;  ///< a list's items, or a map's values
  std::vector<Key> keys;     ///< a map's keys, parallel to items

  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_list() const { return kind == Kind::list; }
  bool is_map() const { return kind == Kind::map; }

  const Value* find(std::string_view key) const;  ///< the key's value in a map; nullptr if not there
  Value& find_or_add(const Key& key);             ///< the key's value in a map
  void set(const std::string& key, Value value) { find_or_add({key, {}}) = std::move(value); }
  void erase(std::string_view key);
};

Value plain(std::string text);   ///< an unquoted scalar, as numbers and booleans are written
Value quoted(std::string text);  ///< a string
Value list_of(std::vector<Value> items);
Value empty_map();

/// A value for messages: the scalar itself (in its quotes, shortened if long), "a list", "a map" or "null".
std::string display_text(const Value& value);
std::string display_text(std::string_view text);

}  // namespace trainopt
