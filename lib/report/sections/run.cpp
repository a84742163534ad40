#include "report/run_sections.h"

#include <algorithm>

namespace trainopt::report {

std::vector<Section> run_sections(const RunFolder& run, const Place& place) {
  std::vector<Section> sections;
  for (const auto section : {throughput_section, step_times_section, loss_section, memory_section, hardware_section,
                             loader_section, ranks_section, profile_section})
    sections.push_back(section(run, place));
  std::erase_if(sections, [](const Section& section) { return section.content.empty(); });
  return sections;
}

}  // namespace trainopt::report
