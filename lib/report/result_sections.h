// The sections of a page about a comparison, a rotation of several arms, an ablation, or a
// learning-rate range test.
#pragma once

#include "report/page.h"
#include "report/run_sections.h"
#include "report/sources.h"

#include <string>
#include <vector>

namespace trainopt::report {

std::vector<Section> result_sections(const ResultFolder& folder, const Place& place);

/// Of an ablation.
Html ablation_headline(const ResultFolder& folder, const Place& place);
std::vector<Section> ablation_sections(const ResultFolder& folder, const Place& place);

/// Of `find lr`.
Html rate_range_headline(const Figures& result);
Html rate_range_chart(const Figures& result, const Place& place);

/// The arms a and b of a comparison, or the list of a rotation.
std::vector<Figures> arms_of(const Figures& result);

/// pays, costs, no effect, inconclusive; null and what is not known are undecided.
Forest::Verdict verdict_of(const Json& verdict);
/// The verdict as a chip: <span class="verdict is-faster">.
Html verdict_chip(const Figures& result);
/// "+31.0 % (28.0 … 34.0)" with figures for the ratio and both ends; the reason if there is no ratio.
Html gain_figures(const Figures& gain);

/// A ratio with its interval as a row of a forest; nothing if there is no ratio.
std::optional<Forest::Row> forest_row(std::string name, const Json& gain);

/// The arms of a comparison or rotation in a table.
Html arms_table(const Figures& result);
/// Throughput of each turn in the order in which it was taken.
Html turns_chart(const Json& result, const Place& place);
/// The numbers of two arms beside their speed.
Html numbers_facts(const Figures& numerics);

}  // namespace trainopt::report
