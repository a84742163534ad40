#include "config/problems.h"

#include <algorithm>

namespace trainopt {
namespace {

constexpr size_t kShownProblems = 200;  // hostile files can have a hundred thousand

std::string lines_of(const std::vector<Problem>& problems) {
  TRAINOPT_CHECK(!problems.empty());
  std::string lines;
  for (size_t i = 0; i < std::min(problems.size(), kShownProblems); ++i)
    lines += (i == 0 ? "" : "\n") + to_text(problems[i]);
  if (problems.size() > kShownProblems) lines += fmt::format("\nand {} more", problems.size() - kShownProblems);
  return lines;
}

}  // namespace

Problem problem_at(const Origins& origins, const std::string& key, const std::string& message) {
  for (std::string nearest = key; !nearest.empty();) {
    if (const auto found = origins.find(nearest); found != origins.end()) return {found->second, key, message};
    const size_t dot = nearest.rfind('.');
    nearest.resize(dot == std::string::npos ? 0 : dot);
  }
  return {"", key, message};
}

std::string to_text(const Problem& problem) {
  std::string text;
  for (const std::string* part : {&problem.where, &problem.key})
    if (!part->empty()) text += *part + ": ";
  return text + problem.message;
}

RecipeErrors::RecipeErrors(std::vector<Problem> problems)
    : UserError(lines_of(problems), ExitCode::recipe), problems_(std::move(problems)) {}

}  // namespace trainopt
