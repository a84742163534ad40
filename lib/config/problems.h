// What is wrong with a recipe: all of it, each line saying where, which key, what was expected and what was found.
#pragma once

#include "base/error.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct Problem {
  std::string where;  ///< "recipe.yaml:3:7", "command line 'seed=x'", or empty for a value nobody set
  std::string key;    ///< full path, or empty for a problem of the whole file
  std::string message;
  bool operator==(const Problem&) const = default;
};

/// Where each key that somebody set was set: full key -> Problem::where.
using Origins = std::map<std::string, std::string>;

/// A problem of `key`, placed where the key was set, or else where the nearest section around it was.
Problem problem_at(const Origins& origins, const std::string& key, const std::string& message);

/// "recipe.yaml:3:7: data.batch_size: must be at least 1: 0"
std::string to_text(const Problem& problem);

class RecipeErrors : public UserError {
 public:
  /// what() has one line a problem, the first hundred of them. TRAINOPT_CHECKs that there is one.
  explicit RecipeErrors(std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

}  // namespace trainopt
