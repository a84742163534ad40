// JSON whose keys keep the order they were written in.
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>

namespace trainopt {
using Json = nlohmann::ordered_json;

/// Appends those of `items` that `list`, an array, does not have yet.
inline void append_new(Json& list, const Json& items) {
  for (const auto& item : items)
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}
}  // namespace trainopt
