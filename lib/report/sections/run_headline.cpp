#include "report/diagnosis.h"
#include "report/headlines.h"
#include "report/figures.h"
#include "report/switches.h"

#include "base/counted.h"

#include <fmt/format.h>

namespace trainopt::report {
namespace {

Html status_line(const RunFolder& run, const Figures& summary) {
  if (!run.ended()) {
    const auto step = run.steps.last(Metric::step);
    const Json& all = at(run.plan, "steps");
    return element("p", {{"class", "status is-running"}},
                   "Running, or ended without a summary: " +
                       (step ? figure(summary.prefix() + "last_step", *step, "step " + count_text(*step))
                             : Html("no step recorded yet")) +
                       (all.is_number() ? escape(" of " + count_text(all.get<double>())) : ""));
  }
  const bool done = summary.json("status") == "done";
  return element("p", {{"class", done ? "status" : "status warning"}},
                 element("strong", summary.text("status")) + " " + summary.text("reason"));
}

/// Of the records, while there is no summary.
Html last_recorded(const RunFolder& run, const Figures& summary, Metric metric, const char* name, NumberText text) {
  const auto& value = run.steps.last(metric);
  return figure(summary.prefix() + "last." + name, value ? Json(*value) : Json(),
                value ? text(*value) : std::string(kMissing));
}

Html running_figures(const RunFolder& run, const Figures& summary) {
  return key_figure(last_recorded(run, summary, Metric::samples_per_s, "samples_per_s", rate_text), "samples/s",
                    "in the last recorded step") +
         key_figure(last_recorded(run, summary, Metric::step_ms, "step_ms", ms_text), "step time", {}) +
         key_figure(last_recorded(run, summary, Metric::loss, "loss", plain_text), "loss", {});
}

Html interval_note(const Figures& summary) {
  const Figures interval = summary.of("samples_per_s_interval");
  if (!interval.value("low") || !interval.value("high")) return "too few steps for an interval";
  return interval.number("low", rate_text) + " … " + interval.number("high", rate_text);
}

Html utilization(const Figures& summary) {
  if (summary.value("gpu_util_pct"))
    return key_figure(summary.number("gpu_util_pct", percent_text), "GPU: a kernel running", "NVML, mean");
  return key_figure(summary.number("cpu_util_pct", percent_text), "CPU utilization", "of the allowed cores, mean");
}

Html ended_figures(const Figures& summary) {
  Html figures =
      key_figure(summary.number("samples_per_s", rate_text), "samples/s", interval_note(summary)) +
      key_figure(summary.number("step_ms.p50", ms_text), "step time, median",
                 "p95 " + summary.number("step_ms.p95", ms_text)) +
      key_figure(summary.number("data_wait_pct", percent_text), "waiting for data", "of the time") +
      utilization(summary) +
      key_figure(summary.number("peak_memory_mib", mib_text), "peak memory",
                 summary.value("memory.peak_bytes") ? summary.number("memory.peak_bytes", bytes_text) + " in tensors"
                                                    : Html());
  figures += summary.value("evaluation.top1_pct")
                 ? key_figure(summary.number("evaluation.top1_pct", percent_text), "top-1",
                              "loss " + summary.number("evaluation.loss", plain_text))
                 : key_figure(summary.number("loss.last", plain_text), "last loss",
                              "first " + summary.number("loss.first", plain_text));
  return figures;
}

Html limits(const RunFolder& run, const Place& place) {
  const auto limit = limit_of(run);
  if (!limit) return {};
  return element("h2", "What limits it") +
         element("p", {{"class", "limits"}},
                 element("strong", escape(limit->sentence)) + " " +
                     element("span", {{"class", "share"}, {"style", fmt::format("--share:{:.1f}%", limit->share_pct)}},
                             figure(place.keys + "limit_pct", limit->share_pct, percent_text(limit->share_pct))) +
                     " " + element("span", {{"class", "evidence"}}, escape(limit->evidence)));
}

Html advice(const RunFolder& run) {
  Html items;
  for (const Advice& one : advice_for(run))
    items += element("li", element("strong", escape(one.what)) + " " +
                               element("span", {{"class", "evidence"}}, escape(one.evidence)) +
                               (one.command.empty() ? Html() : " " + element("code", escape(one.command))));
  if (items.empty()) return {};
  return element("h2", "What to try") + element("ul", {{"class", "advice"}}, items);
}

Html warnings(const Json& list) {
  Html all;
  for (const Json& text : list) all += element("p", {{"class", "warning"}}, escape(value_text(text)));
  return all;
}

}  // namespace

Html notes(const std::vector<std::string>& notes) {
  Html all;
  for (const auto& note : notes) all += element("p", {{"class", "warning"}}, escape(note));
  return all;
}

Html headline(const RunFolder& run, const Place& place) {
  const Figures summary(run.summary, place.keys);
  const Html switches = switch_list(summary.of("receipts"));
  return status_line(run, summary) +
         element("div", {{"class", "key-figures"}},
                 run.ended() ? ended_figures(summary) : running_figures(run, summary)) +
         limits(run, place) + (switches.empty() ? Html() : element("h2", "Which switches did what") + switches) +
         advice(run) + warnings(at(run.summary, "warnings")) + notes(run.notes);
}

}  // namespace trainopt::report
