// Changes values in the text of a recipe and leaves everything else as its author wrote it.
#pragma once

#include "config/outline.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// The text of one recipe with the overrides `changes`, such as "data.num_workers=2". A value is replaced where it
/// stands; a key that is not there is added to its section, or at the end. `comments`: what to write above the line of
/// a changed key, by its full path. null: a change cannot be made so, as where a value spans several lines.
std::optional<std::string> edited(std::string text, const std::vector<std::string>& changes,
                                  const std::map<std::string, std::string>& comments, const Outline& outline);

}  // namespace trainopt
