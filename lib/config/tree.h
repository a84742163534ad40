// Parses recipe text into a tree. Only this file, which declares TreeBuilder, and tree.cpp use yaml-cpp. What yaml-cpp
// accepts silently but a recipe must not contain (duplicate keys, tags, merge keys, a second document, alias bombs,
// cycles, invalid UTF-8) is rejected during parsing.
#pragma once

#include "config/value.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/mark.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trainopt {

/// All throw RecipeErrors with one problem. The root of a file must be a map.
Value parse_file(const std::filesystem::path& path);
/// Parses a recipe's text; `name` stands for the file in marks.
Value parse_recipe(const std::string& text, const std::string& name);
/// "key.path=value" or "--key.path=value" as a map of maps; every mark is "command line 'key.path=value'".
Value parse_override(const std::string& text);

// Builds a tree from parser events and rejects what a recipe must not contain.

/// Builds the tree from the parser's events, so that limits apply during parsing. Throws RecipeErrors.
class TreeBuilder : public YAML::EventHandler {
 public:
  /// `counts_lines`: marks have a line and column of `text`; otherwise every mark is `source`.
  TreeBuilder(std::string_view text, Mark source, bool counts_lines)
      : text_(text), source_(std::move(source)), counts_lines_(counts_lines) {}

  /// Call it after the last event.
  Value take();
  bool has_root() const { return documents_ > 0; }
  Mark mark_of(const YAML::Mark& mark) const;

  void OnDocumentStart(const YAML::Mark& mark) override;
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override;
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override;
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override;
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

  std::string_view text_from(const YAML::Mark& mark) const;
  void check_tag(const YAML::Mark& mark, const std::string& tag) const;
  void check_text(const YAML::Mark& mark, std::string_view text) const;
  bool expects_key() const;
  void add_key(const YAML::Mark& mark, const std::string& name, bool is_quoted);
  void open(Value::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor);
  void close();
  void add(Value value);
  void count(size_t text_bytes, const Mark& mark);
  void count_copy(const Value& value, const Mark& mark, int depth);

  std::string_view text_;
  Mark source_;
  bool counts_lines_;
  Value root_;
  std::vector<Open> open_;
  std::optional<Mark> odd_key_;
  std::map<YAML::anchor_t, Value> anchors_;  // only closed ones, so that an alias cannot be inside its own anchor
  int documents_ = 0;
  size_t nodes_ = 0, text_bytes_ = 0;
};

/// Length of the UTF-8 sequence at the start of `bytes`, which must not be empty; 0 if it is invalid (overlong,
/// surrogate, too large, truncated).
size_t utf8_length(std::string_view bytes);
/// Whether all of `bytes` is UTF-8.
bool is_utf8(std::string_view bytes);

}  // namespace trainopt
