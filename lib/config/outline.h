// A config as a list of options: its describe(), bound to one instance. Reading, writing, help, schema and suggestions
// are plain functions over an Outline, so they need no templates over configs.
#pragma once

#include "config/form.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace trainopt {

struct Option;

/// One alternative of a variant. Its options are bound to a default instance, which `instance` keeps alive.
struct Alternative {
  std::string name;
  std::shared_ptr<void> instance;
  std::vector<Option> options;
};

struct Option {
  enum class Kind {
    value,    ///< read and written by its Form
    section,  ///< a map of `options`
    toggle,   ///< false | true | a map of `options`
    variant   ///< this key names an alternative, whose options are in the same map
  };
  Kind kind = Kind::value;
  std::string name, help;

  // value
  Bounds bounds;
  std::vector<std::string> aliases;
  OnlyFor only_for;
  std::string type;
  std::function<Json()> schema;  ///< created on demand: it is most of an outline's cost, and loading never needs it
  bool nullable = false;         ///< null is a value rather than "use the default"
  std::function<void(const Value&, const Location&)> read;
  std::function<Value()> write;

  std::vector<Option> options;  ///< section, toggle
  bool* on = nullptr;           ///< toggle

  // variant; the first alternative in `alternatives` is not necessarily the default
  std::vector<Alternative> alternatives;
  std::function<size_t()> current;
  std::function<std::vector<Option>(size_t)> select;  ///< makes it current; returns its options, bound to the config
};
using Outline = std::vector<Option>;

template <class Config>
Outline outline_of(Config& config);

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// The visitor that describe() is called with.
class OutlineBuilder {
 public:
  template <class T>
  void field(std::string_view name, T& member, std::string_view help, const Bounds& bounds = {},
             const Aliases& aliases = {}, const OnlyFor& only_for = {}) {
    Option& option = add(Option::Kind::value, name, help);
    option.bounds = bounds;
    option.only_for = only_for;
    option.aliases.assign(aliases.names.begin(), aliases.names.end());
    option.type = Form<T>::type_text();
    option.schema = [bounds] { return Form<T>::schema(bounds); };
    option.nullable = kIsOptional<T>;
    option.read = [&member](const Value& value, const Location& location) {
      if (auto read = Form<T>::read(value, location)) member = std::move(*read);
    };
    option.write = [&member] { return Form<T>::write(member); };
  }

  template <class Config>
  void section(std::string_view name, Config& config, std::string_view help) {
    add(Option::Kind::section, name, help).options = outline_of(config);
  }

  template <class Config>
  void toggle(std::string_view name, Switch<Config>& config, std::string_view help) {
    Option& option = add(Option::Kind::toggle, name, help);
    option.on = &config.on;
    option.options = outline_of(config.options);
  }

  template <class... Alternatives>
  void variant(std::string_view name_key, std::variant<Alternatives...>& config, std::string_view help) {
    Option& option = add(Option::Kind::variant, name_key, help);
    (option.alternatives.push_back(alternative<Alternatives>()), ...);
    option.current = [&config] { return config.index(); };
    option.select = [&config](size_t wanted) {
      size_t index = 0;
      Outline options;
      ((index++ == wanted ? (options = selected<Alternatives>(config), void()) : void()), ...);
      return options;
    };
  }

  Outline take() { return std::move(outline_); }

 private:
  Option& add(Option::Kind kind, std::string_view name, std::string_view help) {
    Option& option = outline_.emplace_back();
    option.kind = kind;
    option.name = name;
    option.help = help;
    return option;
  }

  template <class T>
  static Alternative alternative() {
    auto instance = std::make_shared<T>();
    return {std::string(T::kName), instance, outline_of(*instance)};
  }

  template <class T, class Variant>
  static Outline selected(Variant& config) {
    if (!std::holds_alternative<T>(config))
      config = T();  // the default alternative keeps the defaults its owner gave it
    return outline_of(std::get<T>(config));
  }

  Outline outline_;
};

template <class Config>
Outline outline_of(Config& config) {
  OutlineBuilder builder;
  describe(builder, config);
  return builder.take();
}

std::vector<std::string_view> alternative_names(const Option& variant);
/// The options that `map` may hold, given the alternatives that it names for its variants (or their current ones).
std::vector<const Option*> options_of_map(const Outline& outline, const Value& map);
/// The option with this key or alias, or nullptr.
const Option* find_option(const std::vector<const Option*>& options, std::string_view key);

inline std::string join_path(const std::string& section, std::string_view key) {
  return section.empty() ? std::string(key) : section + "." + std::string(key);
}

}  // namespace trainopt
