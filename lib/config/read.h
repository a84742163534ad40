// Reads a merged tree into a config and collects problems.
#pragma once

#include "config/outline.h"

namespace trainopt {

struct Reading {
  const Outline& root;  ///< the whole recipe, which suggestions search
  std::vector<Problem>& problems;
  Origins* origins = nullptr;  ///< if given, receives every key that the tree sets
};

/// Reads `map` (a map) into the members behind `outline`. Members keep their defaults if their key is missing, or if it
/// is null and null is not a value of their type.
void read_map(const Value& map, const Outline& outline, const std::string& section, const Reading& reading);

Problem unknown_key(const Value::Key& key, const std::string& section, const std::vector<const Option*>& siblings,
                    const Reading& reading);

}  // namespace trainopt
