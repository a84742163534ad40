// Optimizations by the names that articles use: the tables of guide/by-name.md, which is part of the program.
#pragma once

#include <string>
#include <vector>

namespace trainopt {

/// A row of the page's tables. Its code marks and links are left out.
struct KnownAs {
  std::vector<std::string> names;  ///< "loader workers", "num_workers"
  std::string here;                ///< the keys or commands, or what always happens
  std::vector<std::string> keys;   ///< the recipe's keys among them
};
std::vector<KnownAs> known_as();

/// The rows with a name that has all of these words as whole words; else those with them as parts of words. Case and
/// the difference between -, _ and space do not matter.
std::vector<KnownAs> known_as(const std::string& words);

}  // namespace trainopt
