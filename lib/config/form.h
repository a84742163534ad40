// How a value of type T is written in a recipe. Form<T> is all that reading, writing, help and schema need to know
// about a type. A type with its own form specialises it next to its definition:
//
//   template <> struct Form<Size> {
//     static std::string type_text();  // "224 or [height, width]"
//     static Json schema(const Bounds& bounds);
//     // Returns nullopt after location.problem(...).
//     static std::optional<Size> read(const Value& value, const Location& location);
//     // What it writes must read back as the same size.
//     static Value write(const Size& size);
//   };
#pragma once

#include "base/json.h"
#include "config/describe.h"
#include "config/problems.h"
#include "config/value.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trainopt {

// Strict parsing of numbers and booleans: 010, 0x10 and yes are errors, and so is 1e3 for a whole number.

/// Decimal digits with an optional sign. `reason`, if given, is set when nullopt is returned: "must be a whole number".
std::optional<int64_t> parse_integer(std::string_view text, std::string* reason = nullptr);
/// 1, -0.5, .5, 1., 1e-3; finite.
std::optional<double> parse_number(std::string_view text, std::string* reason = nullptr);
/// parse_boolean()'s reason for a word that means neither true nor false ("yes" and "off" get a hint).
inline constexpr const char* kNotBoolean = "must be true or false";
/// true and false (also True, TRUE, False, FALSE, as YAML 1.2 has them).
std::optional<bool> parse_boolean(std::string_view text, std::string* reason = nullptr);

/// The shortest text that parses back to the same double, with a decimal point so that YAML 1.1 readers also see a
/// float: "0.001", "1.0e-08".
std::string number_text(double value);
/// For messages: a whole number has no decimal point.
std::string short_number_text(double value);

inline Problem problem_in(const Mark& mark, const std::string& key, const std::string& message) {
  return {to_text(mark), key, message};
}

/// The key being read, its bounds, and the list that receives its problems.
struct Location {
  std::string key;
  Bounds bounds;
  std::vector<Problem>* problems;

  void problem(const Value& at, const std::string& message) const {
    problems->push_back(problem_in(at.mark, key, message));
  }
  Location item(size_t index) const { return {fmt::format("{}[{}]", key, index), bounds, problems}; }
};

/// "at least 1 and below 2"; empty without bounds.
std::string bounds_text(const Bounds& bounds, std::string_view unit = "");

template <class T>
struct Form;

#define TRAINOPT_FORM(Type)                                                        \
  template <>                                                                      \
  struct Form<Type> {                                                              \
    static std::string type_text();                                                \
    static Json schema(const Bounds& bounds);                                      \
    static std::optional<Type> read(const Value& value, const Location& location); \
    static Value write(const Type& value);                                         \
  }
TRAINOPT_FORM(bool);
TRAINOPT_FORM(int64_t);
TRAINOPT_FORM(double);
TRAINOPT_FORM(std::string);
TRAINOPT_FORM(Bytes);
TRAINOPT_FORM(Duration);
#undef TRAINOPT_FORM

/// The index in `words`, or nullopt after adding a problem that lists `shown_words` and suggests a similar word.
std::optional<size_t> read_word(const Value& value, const Location& location, std::span<const std::string_view> words,
                                std::span<const std::string_view> shown_words);
std::string joined(std::span<const std::string_view> words, std::string_view separator);
/// False after adding a problem. `length` -1 allows any length.
bool check_list(const Value& value, const Location& location, int length, const std::string& type_text);

template <class E>
requires requires { Choices<E>::all; }
struct Form<E> {
  static std::vector<std::string_view> words(bool with_synonyms) {
    std::vector<std::string_view> words;
    for (const auto& choice : Choices<E>::all)
      if (with_synonyms || word_of(choice.value) == choice.word) words.push_back(choice.word);
    return words;
  }
  static std::string type_text() { return joined(words(false), " | "); }
  static Json schema(const Bounds&) { return {{"enum", words(true)}}; }
  static std::optional<E> read(const Value& value, const Location& location) {
    const auto found = read_word(value, location, words(true), words(false));
    if (!found) return std::nullopt;
    return Choices<E>::all[*found].value;
  }
  static Value write(E value) {
    const std::string word(word_of(value));
    return word == "true" || word == "false" ? plain(word) : quoted(word);  // a choice such as auto | true | false
  }
};

template <class T>
struct Form<std::optional<T>> {
  static std::string type_text() { return Form<T>::type_text() + " | null"; }
  static Json schema(const Bounds& bounds) {
    return {{"anyOf", Json::array({Form<T>::schema(bounds), Json{{"type", "null"}}})}};
  }
  static std::optional<std::optional<T>> read(const Value& value, const Location& location) {
    if (value.is_null()) return std::optional<T>();
    auto inner = Form<T>::read(value, location);
    if (!inner) return std::nullopt;
    return std::optional<std::optional<T>>(std::move(inner));
  }
  static Value write(const std::optional<T>& value) { return value ? Form<T>::write(*value) : Value(); }
};

template <class T>
struct Form<AutoOr<T>> {
  static std::string type_text() { return "auto | " + Form<T>::type_text(); }
  static Json schema(const Bounds& bounds) {
    return {{"anyOf", Json::array({Json{{"const", "auto"}}, Form<T>::schema(bounds)})}};
  }
  static std::optional<AutoOr<T>> read(const Value& value, const Location& location) {
    if (value.is_scalar() && value.text == "auto") return AutoOr<T>();
    const size_t before = location.problems->size();
    if (auto chosen = Form<T>::read(value, location)) return AutoOr<T>(std::move(*chosen));
    static constexpr std::string_view kMust = "must be ";
    for (size_t i = before; i < location.problems->size(); ++i)
      if (auto& message = (*location.problems)[i].message; message.starts_with(kMust))
        message.insert(kMust.size(), "auto or ");
    return std::nullopt;
  }
  static Value write(const AutoOr<T>& value) { return value.is_auto() ? quoted("auto") : Form<T>::write(*value.value); }
};

template <class T>
struct Form<std::vector<T>> {
  static std::string type_text() { return "list of " + Form<T>::type_text(); }
  static Json schema(const Bounds& bounds) { return {{"type", "array"}, {"items", Form<T>::schema(bounds)}}; }
  static std::optional<std::vector<T>> read(const Value& value, const Location& location) {
    if (!check_list(value, location, -1, type_text())) return std::nullopt;
    std::vector<T> items;
    for (size_t i = 0; i < value.items.size(); ++i)
      if (auto item = Form<T>::read(value.items[i], location.item(i))) items.push_back(std::move(*item));
    if (items.size() != value.items.size()) return std::nullopt;
    return items;
  }
  static Value write(const std::vector<T>& value) {
    std::vector<Value> items;
    for (const T& item : value) items.push_back(Form<T>::write(item));
    return list_of(std::move(items));
  }
};

template <class T, size_t N>
struct Form<std::array<T, N>> {
  static std::string type_text() { return fmt::format("list of {} × {}", N, Form<T>::type_text()); }
  static Json schema(const Bounds& bounds) {
    return {{"type", "array"}, {"items", Form<T>::schema(bounds)}, {"minItems", N}, {"maxItems", N}};
  }
  static std::optional<std::array<T, N>> read(const Value& value, const Location& location) {
    if (!check_list(value, location, N, type_text())) return std::nullopt;
    std::array<T, N> items;
    bool good = true;
    for (size_t i = 0; i < N; ++i) {
      auto item = Form<T>::read(value.items[i], location.item(i));
      if (item) items[i] = std::move(*item);
      good = good && item;
    }
    if (!good) return std::nullopt;
    return items;
  }
  static Value write(const std::array<T, N>& value) {
    std::vector<Value> items;
    for (const T& item : value) items.push_back(Form<T>::write(item));
    return list_of(std::move(items));
  }
};

}  // namespace trainopt
