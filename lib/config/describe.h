// The vocabulary of `describe(visitor, config)`: one declaration per option, from which reading, writing, help, schema
// and suggestions all come. A config is a plain struct whose members hold the defaults; beside it stands
//
//   template <class V> void describe(V& v, Config& c) {
//     v.field("decay", c.decay, "Share of the old average kept at each update.", in_range(0.0, 1.0));
//   }
//
// with these calls:
//   v.field(name, member, help, bounds?, aliases?, spellings?)
//                                                   a value: bool, int64_t, double, std::string, Bytes, Duration, an
//   enum with
//                                                    Choices, std::optional<T> (null allowed), std::vector<T>,
//                                                    std::array<T, N>, or a type with a Form<T> of its own
//                                                    (config/form.h)
//   v.section(name, member, help)                    a nested struct with a describe() of its own
//   v.toggle(name, Switch<C>, help, spellings?)      false | true | a map of C's options (which also means true)
//   v.variant(name_key, std::variant<A, B>, help)    in this map, `name_key` says which and the options of that one
//   stand beside it;
//                                                    each alternative has kName and describe()
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

/// Bounds of a number (or of each element of a list, of a size in bytes, of a duration in seconds).
struct Bounds {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_included = true, high_included = true;
  bool contains(double x) const {
    return (low_included ? x >= low : x > low) && (high_included ? x <= high : x < high);
  }
};
inline Bounds in_range(double low, double high) { return {low, high}; }
inline Bounds from_below(double low, double high) { return {low, high, true, false}; }  ///< [low, high)
inline Bounds at_least(double low) { return {.low = low}; }
inline Bounds above(double low) { return {.low = low, .low_included = false}; }
inline Bounds any() { return {}; }

/// Other tools' spellings of the same option in the same section; using one beside the key itself is an error.
struct Aliases {
  std::vector<std::string_view> names;
};
template <class... Name>
Aliases alias(Name... name) {
  return {{std::string_view(name)...}};
}

/// What other tools call an option that is not simply an alias: another section, another shape or another meaning. Used
/// by "did you mean" only.
struct Spelling {
  std::string_view theirs;
  std::string_view value = {};  ///< where the shape differs: what to write after the key
  std::string_view why = {};    ///< not offered here: said instead of a suggestion
};
using Spellings = std::vector<Spelling>;

/// How an enum is written: specialise with `static constexpr std::array all = {Choice<E>{"word", E::word}, ...};`.
/// Several words may name one value; the first is the one written back.
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

/// An optimization that is off, on with defaults, or on with options.
template <class Options>
struct Switch {
  bool on = false;
  Options options;
  explicit operator bool() const { return on; }
};

}  // namespace trainopt
