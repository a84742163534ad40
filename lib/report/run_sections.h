// The sections of a page about one run, each empty if there is nothing to show.
#pragma once

#include "report/page.h"
#include "report/run_folder.h"

#include <string>
#include <vector>

namespace trainopt::report {

/// Where on a page a run stands: alone, or one of several.
struct Place {
  std::string keys;     ///< before each data-key: "" or "2."
  std::string ids;      ///< before each id: "" or "run2-"
  std::string heading;  ///< before each title: "" or "baseline: "
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

}  // namespace trainopt::report
