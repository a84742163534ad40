// A comparison as text, Markdown and CSV.
#pragma once

#include "compare/comparison_words.h"

#include <string>

namespace trainopt {

/// The verdict in one line. Gives the end of the interval that has been shown before the measured ratio: a comparison
/// that stops as soon as it is decided tends to stop at a lucky moment.
std::string headline(const Comparison& comparison);
/// "75.3 samples/s, step 428.3 ms, waiting for data 0.0 %, …".
std::string arm_text(const ArmResult& arm);

/// Several lines for a terminal; `color`: green for pays, red for costs and for numbers that disagree.
std::string comparison_text(const Comparison& comparison, bool color);
/// The headline, a table and a paragraph in GitHub's Markdown.
std::string comparison_markdown(const Comparison& comparison);
/// One line per turn, with a header: pair,block,order,turn,arm,steps,samples,seconds,…
std::string comparison_csv(const Comparison& comparison);

}  // namespace trainopt
