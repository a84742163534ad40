// The sections of a page about one run, each empty if there is nothing to show.
#pragma once

#include "report/figures.h"
#include "report/page.h"
#include "report/sources.h"

#include <string>
#include <vector>

namespace trainopt::report {

/// Where on a page a run stands: alone, or one of several.
struct Place {
  std::string keys;     ///< put before each data-key: "" or "2."
  std::string ids;      ///< put before each id: "" or "run2-"
  std::string heading;  ///< put before each title: "" or "baseline: "
};

Section throughput_section(const RunFolder& run, const Place& place);
Section step_times_section(const RunFolder& run, const Place& place);
Section loss_section(const RunFolder& run, const Place& place);
Section memory_section(const RunFolder& run, const Place& place);
Section hardware_section(const RunFolder& run, const Place& place);
Section loader_section(const RunFolder& run, const Place& place);
Section ranks_section(const RunFolder& run, const Place& place);
Section profile_section(const RunFolder& run, const Place& place);
Section switches_section(const RunFolder& run, const Place& place);
Section environment_section(const RunFolder& run, const Place& place);

/// All of these but the switches and the environment that have content, in order.
std::vector<Section> run_sections(const RunFolder& run, const Place& place);

/// A chart over steps from zero, without lines yet.
LineChart line_chart(const Place& place, std::string_view key, std::string title, std::string unit);
/// A series with the name, drawn from these columns.
Series series(std::string name, const Columns& columns);

// The first screen: how fast, what limits it, which switches did what, and what to try.

/// `running`: a process still writes to the folder.
Html headline(const RunFolder& run, const Place& place, bool running);
Html headline(const ResultFolder& folder, const Place& place);

/// What limits a run, and what to try.
Html limits(const RunFolder& run, const Place& place);
Html advice(const RunFolder& run);
/// What could not be read, as warnings; `from` names the folder on a page with several.
Html notes(const std::vector<std::string>& notes, const std::string& from = {});

// The sections of a page about a comparison of two arms or several, an ablation, or a
// learning-rate range test.

std::vector<Section> result_sections(const ResultFolder& folder, const Place& place);

/// The headline and sections of an ablation.
Html ablation_headline(const ResultFolder& folder, const Place& place);
std::vector<Section> ablation_sections(const ResultFolder& folder, const Place& place);

/// The headline and chart of `find lr`.
Html rate_range_headline(const Figures& result);
Html rate_range_chart(const Figures& result, const Place& place);

/// The arms a and b of a comparison, or the list of several.
std::vector<Figures> arms_of(const Figures& result);
/// What charts and tables call arm `number` of these: "A" and "B" of two recipes, otherwise the name.
Html label_of_arm(const Figures& result, const Figures& arm, size_t number);

/// pays, costs, no effect, inconclusive; null and what is not known are undecided.
Forest::Verdict verdict_of(const Json& verdict);
/// The verdict as a chip: <span class="verdict is-faster">.
Html verdict_chip(const Figures& result);
/// "+31.0 % (28.0 … 34.0)" with figures for the ratio and both ends; the reason if there is no ratio.
Html gain_figures(const Figures& gain);

/// A ratio with its interval as a row of a forest; nothing if there is no ratio.
std::optional<Forest::Row> forest_row(std::string name, const Json& gain);

/// The arms of a comparison in a table.
Html arms_table(const Figures& result);
/// Throughput of each turn in the order in which it was taken.
Html turns_chart(const Json& result, const Place& place);
/// The numbers of two arms beside their speed.
Html numbers_facts(const Figures& numerics);

// Several runs on one page: the same figures and charts for all of them.

struct NamedRun {
  const RunFolder* run;
  std::string name;                        ///< unique on the page
  std::string keys;                        ///< put before each data-key: "2."
  const Json* against_previous = nullptr;  ///< the comparison with the run before; null: none
};

/// A row for each run: how fast, what it waited for, how it ended.
Html runs_table(const std::vector<NamedRun>& runs);
/// The switches with an effect in each run.
Html switches_of_runs(const std::vector<NamedRun>& runs);
/// Bars of throughput, lines of throughput and loss, and how each recipe differs from the one before (or the first).
std::vector<Section> side_by_side(const std::vector<NamedRun>& runs, bool against_previous);

// What each switch did, as a list.

/// One item of such a list: a receipt whose figure `observed` says what was seen.
Html switch_item(const Figures& receipt, std::string_view name, const char* observed);
/// The list of receipts as in summary.json.
Html switch_list(const Figures& receipts);

// The machine and versions behind a result.

/// The facts in environment.json; empty if it is not there.
Html environment_facts(const Figures& environment);

}  // namespace trainopt::report
