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

/// The fastest of the runs that have ended: what limits it, and what to try next.
Html headline_of_fastest(const std::vector<NamedRun>& runs) {
  const NamedRun* fastest = nullptr;
  const auto rate = [](const NamedRun& one) {
    const Json& value = at(one.run->summary, "samples_per_s");
    return value.is_number() && at(one.run->summary, "status") != "failed" ? value.get<double>() : 0;
  };
  for (const NamedRun& one : runs)
    if (rate(one) > (fastest ? rate(*fastest) : 0)) fastest = &one;
  if (!fastest) return {};
  return element("p", "The fastest is " + element("strong", escape(fastest->name)) + ".") +
         limits(*fastest->run, {fastest->keys, {}, {}}) + advice(*fastest->run);
}

/// What could not be read, and what each run warned of.
Html notes_of(const std::vector<NamedRun>& runs) {
  Html all;
  for (const NamedRun& one : runs) {
    std::vector<std::string> texts = one.run->notes;
    for (const Json& text : at(one.run->summary, "warnings")) texts.push_back(value_text(text));
    all += notes(texts, one.name);
  }
  return all;
}

Html headline_of(const std::vector<NamedRun>& runs) {
  return runs_table(runs) + headline_of_fastest(runs) + switches_of_runs(runs) + notes_of(runs);
}

void compose_alone(Page& page, const LadderFolder& ladder, const Context&) {
  std::vector<NamedRun> runs;
  for (const auto& rung : ladder.rungs)
    runs.push_back({&rung.run, folder_name(rung.run.path), fmt::format("{}.", runs.size() + 1),
                    rung.against_previous.is_object() ? &rung.against_previous : nullptr});
  page.headline = headline_of(runs);
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
    page.headline = headline_of(runs);
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
