// A merged tree becomes a config, or a list of problems.
#pragma once

#include "config/outline.h"

namespace trainopt {

struct Reading {
  const Outline& whole;  ///< the whole recipe, where suggestions look
  std::vector<Problem>& problems;
  Origins* origins = nullptr;  ///< filled with every key that the tree sets, if given
};

/// Reads `map` (a map) into the members behind `outline`. Keys that `map` leaves out keep their defaults, and so do
/// null ones unless null is a value of theirs.
void read_map(const Value& map, const Outline& outline, const std::string& section, const Reading& reading);

Problem unknown_key(const Value::Key& key, const std::string& section, const std::vector<const Option*>& here,
                    const Reading& reading);

}  // namespace trainopt
