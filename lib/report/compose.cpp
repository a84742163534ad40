#include "report/compose.h"

#include "report/figures.h"
#include "report/recipe_differences.h"
#include "report/sections.h"

#include "base/units.h"

#include <fmt/format.h>

#include <set>

namespace trainopt::report {
namespace {

/// With more folders than this, a page has only what they have in common; each has a page of its own.
constexpr size_t kMostDetailed = 8;

Section recipe_section(const RunFolder& run, const Place& place, const Json& defaults) {
  if (!run.recipe.is_object()) return {};
  const Html all = element("details", element("summary", "The whole recipe") +
                                          element("pre", escape(shortened(json_text(run.recipe, 2), 100'000))));
  return {place.ids + "recipe-section", place.heading + "Recipe",
          element("h3", "What differs from the defaults") +
              draw(recipe_differences(defaults, run.recipe), "default", "this run") + all};
}

Section messages_section(const RunFolder& run, const Place& place) {
  if (run.messages.empty()) return {};
  std::string text;
  for (const auto& line : run.messages) text += line + "\n";
  return {place.ids + "messages-section", place.heading + "Messages", element("pre", escape(text))};
}

void append(std::vector<Section>& sections, std::vector<Section> more) {
  for (Section& section : more)
    if (!section.content.empty()) sections.push_back(std::move(section));
}

std::vector<Section> sections_of(const RunFolder& run, const Place& place, const Context& context) {
  std::vector<Section> sections = run_sections(run, place);
  const bool in_headline = place.keys.empty() && run.ended();
  if (!in_headline) append(sections, {switches_section(run, place)});
  append(sections, {recipe_section(run, place, context.default_recipe), messages_section(run, place),
                    environment_section(run, place)});
  return sections;
}

std::string rate_of(const RunFolder& run) {
  const Json& rate = at(run.summary, "samples_per_s");
  if (at(run.summary, "status") == "failed") return ": failed";
  return rate.is_number() ? fmt::format(": {} samples/s", rate_text(rate.get<double>())) : std::string();
}

std::string title_of(const Source& source) {
  if (const auto* run = std::get_if<RunFolder>(&source)) return run->name() + rate_of(*run);
  if (const auto* result = std::get_if<ResultFolder>(&source)) {
    static constexpr std::string_view kWords[] = {"comparison", "comparison of several",
                                                  "comparison with a stored result", "ablation",
                                                  "learning-rate range test"};
    const Json &name = at(result->result, "name"), &key = at(result->result, "each.key");
    if (key.is_string()) return fmt::format("{}: values of {}", folder_name(result->path), key.get<std::string>());
    return fmt::format("{}: {}", name.is_string() ? name.get<std::string>() : folder_name(result->path),
                       kWords[static_cast<size_t>(result->kind)]);
  }
  const auto& ladder = std::get<LadderFolder>(source);
  return fmt::format("{} runs in {}", ladder.rungs.size(), folder_name(ladder.path));
}

void compose_alone(Page& page, const RunFolder& run, const Context& context) {
  page.headline = headline(run, {}, context.running);
  page.sections = sections_of(run, {}, context);
}

void compose_alone(Page& page, const ResultFolder& result, const Context&) {
  page.headline = headline(result, {});
  page.sections = result_sections(result, {});
}

/// Samples per second of a run that ended well; 0: none.
double rate_of(const NamedRun& one) {
  const Json& value = at(one.run->summary, "samples_per_s");
  return value.is_number() && at(one.run->summary, "status") != "failed" ? value.get<double>() : 0;
}

/// The switches that had an effect.
std::string effects_of(const NamedRun& one) {
  std::string names;
  for (const auto& [name, receipt] : at(one.run->summary, "receipts").items())
    if (at(receipt, "effective") == true) names += name + " ";
  return names;
}

/// How many times faster than `slower` a run of a ladder is at least, by the comparisons of each run with the one
/// before. A run in which the same switches had an effect as in the one before was not compared, and is as fast. 0: not
/// known.
double least_ratio_in_ladder(const std::vector<NamedRun>& runs, size_t faster, size_t slower) {
  double ratio = 1;
  for (size_t i = std::min(faster, slower) + 1; i <= std::max(faster, slower); ++i) {
    if (!runs[i].against_previous && effects_of(runs[i]) == effects_of(runs[i - 1])) continue;
    const Json none;
    const Json& against = runs[i].against_previous ? *runs[i].against_previous : none;
    const Json& end = at(against, faster > slower ? "interval.0" : "interval.1");
    if (!end.is_number()) return 0;
    ratio = faster > slower ? ratio * end.get<double>() : ratio / end.get<double>();
  }
  return ratio;
}

/// How many times faster than `slower` a run is at least, by the noise of both. 0: not known.
double least_ratio(const std::vector<NamedRun>& runs, size_t faster, size_t slower) {
  const Json &of_faster = at(runs[faster].run->summary, "limit.noise_pct"),
             &of_slower = at(runs[slower].run->summary, "limit.noise_pct");
  if (!of_faster.is_number() || !of_slower.is_number()) return 0;
  return rate_of(runs[faster]) * (1 - of_faster.get<double>() / 100) /
         (rate_of(runs[slower]) * (1 + of_slower.get<double>() / 100));
}

/// The fastest of the runs that have ended, if the measurements tell it from all others: what limits it, and what to
/// try next.
Html headline_of_fastest(const std::vector<NamedRun>& runs, bool is_ladder) {
  const auto ratio = is_ladder ? least_ratio_in_ladder : least_ratio;
  const size_t fastest = static_cast<size_t>(
      std::max_element(runs.begin(), runs.end(),
                       [](const NamedRun& a, const NamedRun& b) { return rate_of(a) < rate_of(b); }) -
      runs.begin());
  if (fastest == runs.size() || rate_of(runs[fastest]) <= 0) return {};
  Html alike;
  for (size_t i = 0; i < runs.size(); ++i)
    if (i != fastest && rate_of(runs[i]) > 0 && ratio(runs, fastest, i) <= 1)
      alike += (alike.empty() ? "" : ", ") + element("strong", escape(runs[i].name));
  const Html name = element("strong", escape(runs[fastest].name));
  return element("p", alike.empty() ? "The fastest is " + name + "."
                                    : "No run is shown to be the fastest: " + name +
                                          " has the highest throughput, and is not told apart from " + alike + ".") +
         limits(*runs[fastest].run, {runs[fastest].keys, {}, {}}) + advice(*runs[fastest].run);
}

/// "first, second" or "19 runs".
std::string names_of(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 3;
  return names.size() > kNamed ? fmt::format("{} runs", names.size()) : fmt::format("{}", fmt::join(names, ", "));
}

/// What could not be read, and what each run warned of: each text once.
Html notes_of(const std::vector<NamedRun>& runs) {
  std::vector<std::pair<std::string, std::vector<std::string>>> names_by_text;
  for (const NamedRun& one : runs) {
    std::vector<std::string> texts = one.run->notes;
    for (const Json& text : at(one.run->summary, "warnings")) texts.push_back(value_text(text));
    for (const std::string& text : texts) {
      const auto known = std::find_if(names_by_text.begin(), names_by_text.end(),
                                      [&](const auto& each) { return each.first == text; });
      (known == names_by_text.end() ? names_by_text.emplace_back(text, std::vector<std::string>()) : *known)
          .second.push_back(one.name);
    }
  }
  Html all;
  for (const auto& [text, names] : names_by_text) all += notes({text}, names_of(names));
  return all;
}

Html headline_of(const std::vector<NamedRun>& runs, bool is_ladder) {
  return runs_table(runs) + headline_of_fastest(runs, is_ladder) + switches_of_runs(runs) + notes_of(runs);
}

void compose_alone(Page& page, const LadderFolder& ladder, const Context&) {
  std::vector<NamedRun> runs;
  for (const auto& rung : ladder.rungs)
    runs.push_back({&rung.run, folder_name(rung.run.path), fmt::format("{}.", runs.size() + 1),
                    rung.against_previous.is_object() ? &rung.against_previous : nullptr});
  page.headline = headline_of(runs, true);
  page.sections = side_by_side(runs, true);
}

/// Each source's own sections, with the table and charts of all runs before them.
void compose_several(Page& page, const std::vector<Source>& sources, const Context& context) {
  std::vector<NamedRun> runs;
  std::set<std::string> names;
  std::vector<Section> own;
  size_t number = 0;
  for (const Source& source : sources) {
    ++number;
    Place place{fmt::format("{}.", number), fmt::format("folder{}-", number), {}};
    const auto& path =
        std::visit([](const auto& folder) -> const std::filesystem::path& { return folder.path; }, source);
    std::string name = folder_name(path);
    if (!names.insert(name).second) name = fmt::format("{} ({})", name, number);
    place.heading = name + ": ";
    const bool detailed = sources.size() <= kMostDetailed;
    if (const auto* run = std::get_if<RunFolder>(&source)) {
      runs.push_back({run, name, place.keys});
      if (detailed) append(own, sections_of(*run, place, context));
    } else if (const auto* result = std::get_if<ResultFolder>(&source)) {
      own.push_back({place.ids + "headline", name, headline(*result, place)});
      if (detailed) append(own, result_sections(*result, place));
    } else {
      for (const auto& rung : std::get<LadderFolder>(source).rungs)
        runs.push_back(
            {&rung.run, name + "/" + folder_name(rung.run.path), fmt::format("{}{}.", place.keys, runs.size() + 1)});
    }
  }
  if (!runs.empty()) {
    page.headline = headline_of(runs, false);
    page.sections = side_by_side(runs, false);
  }
  append(page.sections, std::move(own));
}

}  // namespace

Page compose(const std::vector<Source>& sources, const Context& context) {
  Page page{.title = {}, .headline = {}, .sections = {}, .footer = {}, .reload_s = context.reload_s};
  page.footer = context.written_by + ", " + context.written_at;
  if (sources.size() == 1) {
    page.title = shortened(title_of(sources.front()), 200);
    std::visit([&](const auto& folder) { compose_alone(page, folder, context); }, sources.front());
  } else {
    page.title = fmt::format("{} side by side", counted(static_cast<int64_t>(sources.size()), "folder"));
    compose_several(page, sources, context);
  }
  return page;
}

}  // namespace trainopt::report
