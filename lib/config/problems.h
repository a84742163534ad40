// All problems of a recipe. Each line states the location, the key, what was expected and what was found.
#pragma once

#include "base/error.h"

#include <map>
#include <string>
#include <vector>

namespace trainopt {

struct Problem {
  std::string where;  ///< "recipe.yaml:3:7", "command line 'seed=x'", or empty if no source set the value
  std::string key;    ///< full path, or empty for a problem of the whole file
  std::string message;
  bool operator==(const Problem&) const = default;
};

/// Where each key was set, for keys that a source set: full key -> Problem::where.
using Origins = std::map<std::string, std::string>;

/// A problem of `key`, located where the key was set, or else where its nearest enclosing section was.
Problem problem_at(const Origins& origins, const std::string& key, const std::string& message);

/// "recipe.yaml:3:7: data.batch_size: must be at least 1: 0"
std::string to_text(const Problem& problem);

class RecipeErrors : public UserError {
 public:
  /// what() has one line per problem, for the first two hundred. There must be at least one.
  explicit RecipeErrors(std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

}  // namespace trainopt
