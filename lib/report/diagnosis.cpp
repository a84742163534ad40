#include "report/diagnosis.h"

#include "base/shell_command.h"
#include "base/units.h"
#include "report/number_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt::report {
namespace {

constexpr size_t kMostChanges = 3;   // most changes shown of those that would help
constexpr double kBusyMachine = 10;  // % of the cores taken by other programs

std::optional<double> number(const Json& json, std::string_view path) {
  const Json& value = at(json, path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

const Json& list_at(const Json& json, std::string_view path) {
  static const Json kNoEntries = Json::array();
  const Json& value = at(json, path);
  return value.is_array() ? value : kNoEntries;
}

/// "trainopt compare runs/job/recipe.yaml REST", started as the run was.
std::string command(const RunFolder& run, std::string_view name, std::string_view rest) {
  const std::string start = run.ranks() > 1 && name != "plan" && name != "data bench"
                                ? fmt::format("trainopt launch -n {} -- {}", run.ranks(), name)
                                : fmt::format("trainopt {}", name);
  return fmt::format("{} {}{}{}", start, shell_quoted((run.path / "recipe.yaml").string()), rest.empty() ? "" : " ",
                     rest);
}

std::string capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

/// The changes that the run's own diagnosis proposes.
void advise_changes(const RunFolder& run, std::vector<Advice>& all) {
  for (const Json& one : list_at(run.summary, "advice")) {
    if (all.size() == kMostChanges) return;
    const std::string what = capitalized(value_text(at(one, "what")));
    if (std::any_of(all.begin(), all.end(), [&](const Advice& other) { return other.what == what; })) continue;
    const double ratio = number(one, "estimated_ratio").value_or(1);
    const std::string needs = value_text(at(one, "needs"));
    all.push_back({what,
                   fmt::format("{}; estimated {}{}", value_text(at(one, "evidence")), gain_text(ratio),
                               needs.empty() || needs == kMissing ? "" : "; needs " + needs),
                   value_text(at(one, "command"))});
  }
}

/// Commands that look closer at what limits the run.
void advise_looks(const RunFolder& run, std::vector<Advice>& all) {
  const std::string limit = value_text(at(run.summary, "limit.name"));
  const std::string evidence = value_text(at(run.summary, "limit.text"));
  if (limit == "loader" || limit == "storage")
    all.push_back({"Measure the loader alone", evidence, command(run, "data bench", "")});
  if (limit == "launches") all.push_back({"Profile a few steps", evidence, command(run, "profile", "")});
}

/// Switches that the recipe leaves off and that this machine can use. Which of them pay, only a measurement says.
void advise_switches(const RunFolder& run, std::vector<Advice>& all) {
  std::string names, changes;
  for (const Json& unused : at(run.plan, "unused_switches")) {
    const std::string change = value_text(at(unused, "change"));
    const size_t begin = change.rfind('.', change.find('=')) + 1;
    names += (names.empty() ? "" : ", ") + change.substr(begin, change.find('=') - begin);
    changes += (changes.empty() ? "" : " ") + shell_quoted(change);
  }
  if (!names.empty())
    all.push_back({"Measure what is off: " + names, "these would have an effect on this machine",
                   command(run, "ablate", changes)});
}

void advise_noise(const RunFolder& run, std::vector<Advice>& all) {
  if (const double other = run.steps.measured_mean(Metric::other_cpu_pct).value_or(0); other > kBusyMachine)
    all.push_back(
        {"Measure on a quiet machine", fmt::format("other programs used {} of the cores", percent_text(other)), ""});
  if (run.steps.throttled_steps() > 0)
    all.push_back({"Look at cooling and power limits",
                   fmt::format("the GPU's clock was throttled in {} steps",
                               count_text(static_cast<double>(run.steps.throttled_steps()))),
                   ""});
}

}  // namespace

std::optional<Limit> limit_of(const RunFolder& run) {
  const Json& stored = at(run.summary, "limit");
  if (!stored.is_object()) return std::nullopt;
  Limit limit{.sentence = {}, .evidence = {}, .share_pct = number(stored, "share_pct"), .parts = {}};
  const auto words = [&](const char* key) {
    const Json& value = at(stored, key);
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  limit.sentence = limit.share_pct ? fmt::format("{}: {}.", capitalized(words("name")), words("what"))
                                   : capitalized(words("text")) + ".";
  limit.evidence = words("evidence");
  double left = 100;
  for (const Json& part : list_at(stored, "parts")) {
    const double share = std::clamp(number(part, "share_pct").value_or(0), 0.0, std::max(0.0, left));
    limit.parts.push_back({value_text(at(part, "name")), share});
    left -= share;
  }
  limit.parts.push_back({"other", std::max(0.0, left)});
  return limit;
}

std::vector<Advice> advice_for(const RunFolder& run) {
  std::vector<Advice> all;
  const Json& status = at(run.summary, "status");
  if (!run.ended() || status == "failed" || run.steps.steps() == 0) return all;
  advise_changes(run, all);
  advise_looks(run, all);
  advise_switches(run, all);
  advise_noise(run, all);
  return all;
}

}  // namespace trainopt::report
