#include "report/figures.h"
#include "report/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trainopt::report {
namespace {

constexpr size_t kMostArms = 32;

Html phases(const Figures& arm) {
  const double steps = arm.value("phases.steps").value_or(0);
  if (steps <= 0) return escape(kMissing);
  std::string text;
  for (const char* phase : {"forward", "backward", "update"})
    if (const auto sum = arm.value(fmt::format("phases.{}_ms", phase)))
      text += (text.empty() ? "" : " + ") + ms_text(*sum / steps);
  return escape(text.empty() ? std::string(kMissing) : text);
}

}  // namespace

std::vector<Figures> arms_of(const Figures& result) {
  std::vector<Figures> arms;
  const Json& list = result.json("arms");
  for (size_t i = 0; list.is_array() && i < std::min<size_t>(list.size(), kMostArms); ++i)
    arms.push_back(result.of(fmt::format("arms.{}", i)));
  for (const char* arm : {"arms.a", "arms.b"})
    if (list.is_object() && !result.json(arm).is_null()) arms.push_back(result.of(arm));
  return arms;
}

Html label_of_arm(const Figures& result, const Figures& arm, size_t number) {
  return result.json("arms").is_object() ? escape(number == 0 ? "A" : "B") : arm.text("name");
}

Forest::Verdict verdict_of(const Json& verdict) {
  if (verdict == "pays") return Forest::Verdict::faster;
  if (verdict == "costs") return Forest::Verdict::slower;
  if (verdict == "no effect") return Forest::Verdict::none;
  return Forest::Verdict::undecided;
}

Html verdict_chip(const Figures& result) {
  const char* kind = "is-undecided";
  switch (verdict_of(result.json("verdict"))) {
    case Forest::Verdict::faster:
      kind = "is-faster";
      break;
    case Forest::Verdict::slower:
      kind = "is-slower";
      break;
    case Forest::Verdict::none:
      kind = "is-none";
      break;
    case Forest::Verdict::undecided:
      break;
  }
  return element("span", {{"class", std::string("verdict ") + kind}}, result.text("verdict"));
}

Html gain_figures(const Figures& gain) {
  if (!gain.value("ratio"))
    return gain.json("reason").is_string() ? gain.text("reason") : gain.number("ratio", gain_text);
  const Html interval = gain.interval("interval", gain_text);
  return gain.number("ratio", gain_text) + (interval.empty() ? Html() : " (" + interval + ")");
}

std::optional<Forest::Row> forest_row(std::string name, const Json& gain) {
  const Json &ratio = at(gain, "ratio"), &low = at(gain, "interval.0"), &high = at(gain, "interval.1");
  if (!ratio.is_number() || ratio.get<double>() <= 0) return std::nullopt;
  Forest::Row row{.name = std::move(name),
                  .ratio = ratio.get<double>(),
                  .interval = {},
                  .verdict = verdict_of(at(gain, "verdict")),
                  .text = gain_text(ratio.get<double>())};
  if (low.is_number() && high.is_number() && low.get<double>() > 0) {
    row.interval = {low.get<double>(), high.get<double>()};
    row.text += fmt::format(" ({} … {})", gain_text(low.get<double>()), gain_text(high.get<double>()));
  }
  return row;
}

Html arms_table(const Figures& result) {
  Table table{.caption = "Arms",
              .columns = {{"arm"},
                          {"samples/s", true},
                          {"step, median", true},
                          {"forward + backward + update", true},
                          {"waiting for data", true},
                          {"peak memory", true},
                          {"first step after", true}},
              .rows = {}};
  for (const auto& arm : arms_of(result)) {
    table.rows.push_back({label_of_arm(result, arm, table.rows.size()), arm.number("samples_per_s", rate_text),
                          arm.number("step_ms_p50", ms_text), phases(arm), arm.number("data_wait_pct", percent_text),
                          arm.number("peak_memory_mib", mib_text), arm.number("time_to_first_step_s", seconds_text)});
  }
  return table.rows.empty() ? Html() : draw(table);
}

Html turns_chart(const Json& result, const Place& place) {
  LineChart chart = line_chart(place, "turns", "Throughput of each turn", "samples/s");
  chart.x_title = "turn";
  std::map<std::string, Columns> arms;
  int64_t turn_number = 0;
  for (const Json& block : at(result, "samples"))
    for (const Json& turn : at(block, "turns")) {
      ++turn_number;
      const Json &samples = at(turn, "samples"), &seconds = at(turn, "seconds");
      if (!samples.is_number() || !seconds.is_number() || seconds.get<double>() <= 0) continue;
      arms.try_emplace(value_text(at(turn, "arm")))
          .first->second.add(static_cast<double>(turn_number), samples.get<double>() / seconds.get<double>());
    }
  for (const auto& [arm, columns] : arms) {
    const Json& name = at(result, "arms." + arm + ".name");  // several arms have names, not letters
    chart.series.push_back(series(arm == "a"   ? "A"
                                  : arm == "b" ? "B"
                                               : value_text(name.is_null() ? Json(arm) : name),
                                  columns));
  }
  return chart.series.empty() ? Html() : draw(chart);
}

Html numbers_facts(const Figures& numerics) {
  if (!numerics.json().is_object()) return {};
  if (numerics.json("comparable") == false)
    return element("p", {{"class", "note"}}, "The numbers were not compared: " + numerics.text("reason"));
  const auto distance = [&](const char* path) {
    if (!numerics.value(fmt::format("{}.value", path))) return Html();
    return numerics.number(fmt::format("{}.value", path), plain_text) + " (tolerance " +
           numerics.number(fmt::format("{}.tolerance", path), plain_text) + ")";
  };
  return fact_table("Numbers",
                    {{"the numbers agree", numerics.worded("agree", numerics.json("agree") == true ? "yes" : "no")},
                     {"distance of the losses", distance("loss_distance")},
                     {"largest distance of a loss", distance("worst_loss_distance")},
                     {"direction of the first gradients", distance("gradient_direction")},
                     {"length of the first gradients", distance("gradient_norm")},
                     {"direction of the updates", distance("update_direction")},
                     {"length of the updates", distance("update_norm")}});
}

}  // namespace trainopt::report
