#include "report/charts/frame.h"

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

template <typename Value>
Json array_of(const std::vector<Column>& columns, int digits, Value value) {
  Json out = Json::array();
  for (const auto& column : columns) out.push_back(json_number(value(column), digits));
  return out;
}

/// Digits of steps and seconds: enough that neighbouring steps differ.
constexpr int kPlaceDigits = 12;

}  // namespace

Json json_number(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  const double number = rounded(value, digits);
  if (number == std::floor(number) && std::abs(number) < 1e12) return static_cast<int64_t>(number);  // "12", not "12.0"
  return number;
}

Json place_json(const std::vector<Column>& columns) {
  Json out{{"first", array_of(columns, kPlaceDigits, [](const Column& c) { return c.first; })}};
  if (std::any_of(columns.begin(), columns.end(), [](const Column& c) { return c.first != c.last; }))
    out["last"] = array_of(columns, kPlaceDigits, [](const Column& c) { return c.last; });
  return out;
}

Json value_json(const std::vector<Column>& columns) {
  Json out{{"mean", array_of(columns, 6, [](const Column& c) { return c.mean(); })}};
  if (std::all_of(columns.begin(), columns.end(), [](const Column& c) { return c.low == c.high; })) return out;
  out["low"] = array_of(columns, 6, [](const Column& c) { return c.low; });
  out["high"] = array_of(columns, 6, [](const Column& c) { return c.high; });
  return out;
}

}  // namespace trainopt::report
