// Optional values in JSON: absent values are null.
#pragma once

#include "base/json.h"
#include "statistics/spread.h"

#include <optional>

namespace trainopt {

/// An interval is [low, high].
inline Json json_value(const Interval& interval) { return {interval.low, interval.high}; }
template <class T>
Json json_value(const T& value) {
  return value;
}
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? json_value(*value) : Json();
}

inline void read_value(const Json& json, Interval& interval) { interval = {json.at(0), json.at(1)}; }
template <class T>
void read_value(const Json& json, T& value) {
  value = json.get<T>();
}
/// Throws Json::exception if the key is absent or its value has another type.
template <class T>
std::optional<T> optional_at(const Json& json, const char* key) {
  if (json.at(key).is_null()) return std::nullopt;
  T value{};
  read_value(json.at(key), value);
  return value;
}

}  // namespace trainopt
