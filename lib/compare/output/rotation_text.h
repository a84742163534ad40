// A rotation as text, Markdown and CSV.
#pragma once

#include "compare/rotation.h"

#include <string>

namespace trainopt {

/// "zero1 is the fastest: at least 3.1 % faster than each other arm".
std::string headline(const Rotation& rotation);
/// Headline, table and remarks for a terminal.
std::string rotation_text(const Rotation& rotation, bool color);
/// The headline, the tables of arms and pairs, and a paragraph in GitHub's Markdown.
std::string rotation_markdown(const Rotation& rotation);
/// One line per turn, with a header: set,round,turn,arm,steps,…
std::string rotation_csv(const Rotation& rotation);

}  // namespace trainopt
