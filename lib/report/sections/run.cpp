#include "report/diagnosis.h"
#include "report/figures.h"
#include "report/sections.h"

#include <fmt/format.h>

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

namespace {

Html status_line(const RunFolder& run, const Figures& summary, bool running) {
  if (!run.ended()) {
    const auto step = run.steps.last(Metric::step);
    const Json& all = at(run.plan, "steps");
    return element("p", {{"class", "note"}},
                   Html(running ? "Running: " : "Ended without a summary: ") +
                       (step ? figure(summary.prefix() + "last.step", *step, "step " + count_text(*step))
                             : Html("no step recorded yet")) +
                       (all.is_number() ? escape(" of " + count_text(all.get<double>())) : ""));
  }
  return element("p", {{"class", summary.json("status") == "done" ? "muted" : "warning"}},
                 summary.text("status") + (summary.json("status") == "failed" ? ": " : " ") + summary.text("reason"));
}

/// A figure from the records, while there is no summary.
Html last_recorded(const RunFolder& run, const Figures& summary, Metric metric, const char* name, NumberText text) {
  const auto& value = run.steps.last(metric);
  return figure(summary.prefix() + "last." + name, value ? Json(*value) : Json(),
                value ? text(*value) : std::string(kMissing));
}

Html running_figures(const RunFolder& run, const Figures& summary) {
  const auto last = [&](Metric metric, const char* name, NumberText text) {
    return last_recorded(run, summary, metric, name, text);
  };
  return key_figure("Throughput", last(Metric::samples_per_s, "samples_per_s", rate_text), "samples/s",
                    "in the last recorded step") +
         key_figure("Step time", last(Metric::step_ms, "step_ms", ms_text), "", {}) +
         key_figure("Loss", last(Metric::loss, "loss", plain_text), "", {});
}

Html interval_note(const Figures& summary) {
  const Figures interval = summary.of("samples_per_s_interval");
  if (!interval.value("low") || !interval.value("high")) return "too few steps for an interval";
  return interval.number("low", rate_text) + " … " + interval.number("high", rate_text);
}

Html evaluation_note(const Figures& summary) {
  return "evaluation loss " + summary.number("evaluation.loss", plain_text) +
         (summary.known_text("evaluation.trained_on").empty() ? "" : ", on data that is trained on");
}

Html utilization(const Figures& summary) {
  if (summary.value("gpu_util_pct"))
    return key_figure("GPU busy", summary.number("gpu_util_pct", percent_text), "",
                      "share of time with a kernel running (NVML)");
  return key_figure("CPU utilization", summary.number("cpu_util_pct", percent_text), "", "of the allowed cores");
}

Html ended_figures(const Figures& summary) {
  return (summary.value("tokens_per_s")
              ? key_figure("Throughput", summary.number("tokens_per_s", rate_text), "tokens/s",
                           summary.number("samples_per_s", rate_text) + " samples/s")
              : key_figure("Throughput", summary.number("samples_per_s", rate_text), "samples/s",
                           interval_note(summary))) +
         key_figure("Step time, median", summary.number("step_ms.p50", ms_text), "",
                    "95 % within " + summary.number("step_ms.p95", ms_text)) +
         key_figure("Waiting for data", summary.number("data_wait_pct", percent_text), "", "of the time") +
         utilization(summary) +
         key_figure("Peak memory", summary.number("peak_memory_mib", mib_text), "",
                    summary.value("memory.peak_bytes")
                        ? summary.number("memory.peak_bytes", bytes_text) + " in tensors at a step's peak"
                        : Html()) +
         (summary.value("evaluation.perplexity")
              ? key_figure("Perplexity", summary.number("evaluation.perplexity", plain_text), "",
                           evaluation_note(summary))
          : summary.value("evaluation.top1_pct")
              ? key_figure("Top-1", summary.number("evaluation.top1_pct", percent_text), "", evaluation_note(summary))
              : key_figure("Last loss", summary.number("loss.last", plain_text), "",
                           "first " + summary.number("loss.first", plain_text)));
}

/// The parts of the time, side by side, with their names below.
Html split_bar(const Limit& limit) {
  Html bars, keys;
  std::string words;
  for (size_t i = 0; i < limit.parts.size(); ++i) {
    const auto& part = limit.parts[i];
    if (part.share_pct <= 0) continue;
    const std::string text = fmt::format("{} {}", part.name, percent_text(part.share_pct));
    words += (words.empty() ? "" : ", ") + text;
    const std::string colour = i + 1 < limit.parts.size() ? fmt::format("c{}", std::min<size_t>(i, 5)) : "c6";
    bars += element("span", {{"class", "bar " + colour}, {"style", fmt::format("width:{:.2f}%", part.share_pct)}}, "");
    keys += element("span", {{"class", colour}}, escape(text));
  }
  return element("div", {{"class", "share"}, {"role", "img"}, {"aria-label", words}}, bars) +
         element("div", {{"class", "keys"}, {"aria-hidden", "true"}}, keys);
}

}  // namespace

Html limits(const RunFolder& run, const Place& place) {
  const auto limit = limit_of(run);
  if (!limit) return {};
  Html text = element("strong", escape(limit->sentence));
  if (limit->share_pct)
    text += " " + figure(place.keys + "limit.share_pct", *limit->share_pct, percent_text(*limit->share_pct)) +
            escape(" of the time" + (limit->evidence.empty() ? "" : "; " + limit->evidence)) + ".";
  return element("h2", "What limits it") +
         element("div", {{"class", "limits"}}, element("p", text) + split_bar(*limit));
}

Html advice(const RunFolder& run) {
  Html items;
  for (const Advice& one : advice_for(run)) items += advice_item(escape(one.what), escape(one.evidence), one.command);
  return items.empty() ? Html() : element("h2", "What to try") + element("ol", {{"class", "advice"}}, items);
}

Html notes(const std::vector<std::string>& notes, const std::string& from) {
  Html all;
  for (const auto& note : notes)
    all += element("p", {{"class", "warning"}}, escape(from.empty() ? note : from + ": " + note));
  return all;
}

Html headline(const RunFolder& run, const Place& place, bool running) {
  const Figures summary(run.summary, place.keys);
  const Html switches = switch_list(summary.of("receipts"));
  return status_line(run, summary, running) +
         element("div", {{"class", "key-figures"}},
                 run.ended() ? ended_figures(summary) : running_figures(run, summary)) +
         limits(run, place) + (switches.empty() ? Html() : element("h2", "Which switches did what") + switches) +
         advice(run) + warnings(at(run.summary, "warnings")) + notes(run.notes);
}

}  // namespace trainopt::report
