// The vocabulary of `describe(visitor, config)`. It declares each option once; reading, writing, help, schema and
// suggestions all follow from that. A config is a plain struct whose members hold the defaults, next to a function
//
//   template <class V> void describe(V& v, Config& c) {
//     v.field("decay", c.decay, "Weight of the old average in each update.", in_range(0.0, 1.0));
//   }
//
// The visitor's calls are:
//
//   v.field(name, member, help, bounds?, aliases?, only_for?)
//     A value: bool, int64_t, double, std::string, Bytes, Duration, an enum with Choices, std::optional<T> (null is
//     allowed), AutoOr<T>, std::vector<T>, std::array<T, N>, or a type with its own Form<T> (config/form.h).
//   v.section(name, member, help)
//     A nested struct with its own describe().
//   v.toggle(name, Switch<C>, help)
//     false, true, or a map of C's options (which also means true).
//   v.variant(name_key, std::variant<A, B>, help)
//     The value of `name_key` selects an alternative; that alternative's options are in the same map. Each alternative
//     has kName and describe().
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trainopt {

/// Bounds of a number, of each element of a list, of a size in bytes or of a duration in seconds.
struct Bounds {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_included = true, high_included = true;
  bool contains(double x) const {
    return (low_included ? x >= low : x > low) && (high_included ? x <= high : x < high);
  }
};
inline Bounds in_range(double low, double high) { return {low, high}; }
inline Bounds half_open(double low, double high) { return {low, high, true, false}; }  ///< [low, high)
inline Bounds at_least(double low) { return {.low = low}; }
inline Bounds above(double low) { return {.low = low, .low_included = false}; }
inline Bounds any() { return {}; }

/// Other tools' names for the same option in the same section. Giving both an alias and its key is an error. Names
/// whose section, shape or meaning differs are in leads.txt.
struct Aliases {
  std::vector<std::string_view> names;
};
template <class... Name>
Aliases alias(Name... name) {
  return {{std::string_view(name)...}};
}

/// An option that only some values of another option in the same section use. When a later source changes that value to
/// one that does not use the option, the option's earlier value is dropped with a note. Refusing the option where it is
/// given together with such a value is left to the recipe's own checks.
struct OnlyFor {
  std::string_view key;  ///< empty: used always
  std::vector<std::string_view> values;
};
/// How an enum is written: specialise with `static constexpr std::array all = {Choice<E>{"word", E::word}, ...};`.
/// Several words may name one value; the first is used for writing.
template <class E>
struct Choice {
  std::string_view word;
  E value;
};
template <class E>
struct Choices;

template <class E>
std::string_view word_of(E value) {
  for (const auto& choice : Choices<E>::all)
    if (choice.value == value) return choice.word;
  throw BrokenInvariant("an enum value without a word");
}

/// A value that the program chooses if the recipe says `auto`.
template <class T>
struct AutoOr {
  std::optional<T> value;  ///< null: auto

  AutoOr(T chosen) : value(std::move(chosen)) {}
  AutoOr() = default;
  bool is_auto() const { return !value; }
  bool operator==(const AutoOr&) const = default;
};

/// An optimization that is off, on with defaults, or on with options.
template <class Options>
struct Switch {
  bool on = false;
  Options options;
  explicit operator bool() const { return on; }
};

}  // namespace trainopt
