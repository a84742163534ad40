#include "report/figures.h"
#include "report/sections.h"

#include <fmt/format.h>

namespace trainopt::report {
namespace {

/// Until the run has ended there are no receipts, only what the plan says.
Html planned_switches(const RunFolder& run, const Place& place) {
  const Figures plan(run.plan, place.keys + "plan.");
  Html items;
  for (size_t i = 0; i < plan.json("switches").size(); ++i) {
    const Figures one = plan.of(fmt::format("switches.{}", i));
    items += switch_item(one, value_text(one.json("name")), "text");
  }
  return items.empty() ? Html()
                       : element("p", {{"class", "note"}}, "Planned; receipts follow when the run has ended.") +
                             element("ul", {{"class", "switches"}}, items);
}

}  // namespace

Html switch_item(const Figures& one, std::string_view name, const char* observed) {
  const bool effective = one.json("effective").is_boolean() && one.json("effective").get<bool>();
  const bool has_reason = one.json("reason").is_string() && !one.json("reason").get_ref<const std::string&>().empty();
  const Html seen =
      effective
          ? element("span", {{"class", "spoken"}}, one.worded("effective", "effective:")) + " " + one.text(observed)
          : one.worded("effective", "no effect:") + " " + one.text(has_reason ? "reason" : observed);
  return element("li", {{"class", effective ? "switch is-effective" : "switch is-idle"}},
                 element("span", {{"class", "name"}}, escape(name)) + " " + element("span", {{"class", "seen"}}, seen));
}

Html switch_list(const Figures& receipts) {
  Html items;
  size_t count = 0;
  for (const auto& [name, receipt] : receipts.json().items()) {  // a name may have dots: not a path
    if (++count > kMostItems) break;
    items += switch_item(Figures(receipt, receipts.prefix() + name + "."), name, "observed");
  }
  return items.empty() ? Html() : element("ul", {{"class", "switches"}}, items) + more_of(receipts.json());
}

Section switches_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "switches-section", place.heading + "What each switch did", {}};
  const Figures receipts = Figures(run.summary, place.keys).of("receipts");
  section.content = receipts.json().is_object() ? switch_list(receipts) : planned_switches(run, place);
  return section;
}

}  // namespace trainopt::report
