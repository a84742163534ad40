// JSON whose objects keep their keys in insertion order.
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>

namespace trainopt {
using Json = nlohmann::ordered_json;

/// Appends those `items` that the array `list` does not contain yet.
inline void append_new(Json& list, const Json& items) {
  for (const auto& item : items)
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}
}  // namespace trainopt
