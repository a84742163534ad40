#include "config/suggest.h"

#include "config/leads.h"
#include "config/outline.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace trainopt {
namespace {

constexpr size_t kMaxKeyLength = 64;  // longer keys are not typing errors

constexpr size_t kMinPrefixLength = 3;  // shorter prefixes match too many names

constexpr std::string_view kDidYouMean = " (did you mean ", kWrite = " (write ";

/// The shortest of `words` that begins with `word`; empty if none does.
std::string_view completion_of(std::string_view word, std::span<const std::string_view> words) {
  std::string_view shortest;
  if (word.size() < kMinPrefixLength) return shortest;
  for (const auto candidate : words)
    if (folded(candidate).starts_with(folded(word)) && (shortest.empty() || candidate.size() < shortest.size()))
      shortest = candidate;
  return shortest;
}

/// How many letters a typing error may get wrong. A guess with more is more often another word.
size_t near_enough(std::string_view word) { return word.size() < 6 ? 1 : word.size() < 12 ? 2 : 3; }

/// The edit distance of `word` and `candidate`; SIZE_MAX if they are too far apart.
size_t match_distance(std::string_view word, std::string_view candidate) {
  const size_t longer = std::max(word.size(), candidate.size()), shorter = std::min(word.size(), candidate.size());
  if (longer - shorter > near_enough(candidate)) return SIZE_MAX;  // rejects most words cheaply
  const size_t distance = edit_distance(word, candidate);
  return distance <= near_enough(candidate) ? distance : SIZE_MAX;
}

struct Named {
  std::string name, path;  // name: the key or one of its aliases
};

void collect(const Outline& outline, const std::string& section, std::vector<Named>& all) {
  for (const Option& option : outline) {
    const std::string path = join_path(section, option.name);
    all.push_back({option.name, path});
    for (const auto& alias : option.aliases) all.push_back({alias, path});
    collect(option.options, path, all);
    for (const auto& alternative : option.alternatives) collect(alternative.options, section, all);
  }
}

Suggestion did_you_mean(const std::vector<std::string>& paths, const std::string& note = "") {
  std::string text;
  for (const auto& path : paths) text += (text.empty() ? "" : " or ") + fmt::format("'{}'", path);
  if (text.empty()) return {};
  return {fmt::format("{}{}?{})", kDidYouMean, text, note.empty() ? "" : " " + note), paths};
}

void add_once(std::vector<std::string>& paths, const std::string& path) {
  constexpr size_t kMaxNames = 3;
  if (paths.size() < kMaxNames && std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
}

/// "average.name" of "average.name: ema".
std::string key_of(const std::string& path) { return path.substr(0, path.find(": ")); }

/// "no equivalent: batches are not mixed", or what always happens or is done otherwise.
std::string reason_of(const Lead& lead) {
  for (const char* complete : {"always", "not needed", "run ", "write ", "use "})
    if (lead.note.starts_with(complete)) return lead.note;
  return "no equivalent: " + lead.note;
}

Suggestion suggestion_of(const Lead& lead, const Outline& all) {
  if (lead.paths.empty()) return {fmt::format(" ({})", reason_of(lead)), {}};
  std::vector<std::string> paths;
  for (const std::string& path : lead.paths)
    if (option_at(all, key_of(path)) != nullptr) add_once(paths, path);
  return did_you_mean(paths, lead.note);
}

/// Names that mean something else in each section, so that evaluation.steps is no train.max_steps.
bool is_generic(std::string_view key) {
  constexpr std::array kGeneric{"interval", "policy",   "strategy", "every",     "steps",      "repeat",
                                "momentum", "gamma",    "weights",  "path",      "backend",    "name",
                                "kind",     "size",     "filter",   "resize",    "decay",      "model",
                                "loss",     "schedule", "dataset",  "max_steps", "transforms", "lr"};
  return std::find(kGeneric.begin(), kGeneric.end(), folded(key)) != kGeneric.end();
}

/// Whether one is the other with an s: data.paths is a mistyped data.path, whatever another trainer calls paths.
bool differ_by_plural(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return !a.empty() && folded(b) == folded(a) + "s";
}

/// The nearest of the names at this level; empty if none is near.
std::string nearest_sibling(std::string_view key, const std::vector<const Option*>& siblings) {
  std::vector<std::string_view> names;
  for (const Option* option : siblings) {
    names.push_back(option->name);
    names.insert(names.end(), option->aliases.begin(), option->aliases.end());
  }
  return closest_match(key, names);
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  const std::string x = folded(a), y = folded(b);
  std::vector<size_t> two_above(y.size() + 1), above(y.size() + 1), row(y.size() + 1);
  for (size_t j = 0; j <= y.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= x.size(); ++i) {
    two_above.swap(above);
    above.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= y.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (x[i - 1] == y[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1])
        row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return row[y.size()];
}

std::string closest_match(std::string_view word, std::span<const std::string_view> words) {
  if (word.size() > kMaxKeyLength) return "";
  std::string_view best;
  size_t min_distance = SIZE_MAX;
  for (const auto candidate : words)
    if (const size_t distance = match_distance(word, candidate); distance < min_distance)
      best = candidate, min_distance = distance;
  // A prefix is far from the full name in edit distance, so it is matched separately. Only a name one letter off wins.
  const auto begun = min_distance > 1 ? completion_of(word, words) : std::string_view();
  return std::string(begun.empty() ? best : begun);
}

const Option* option_at(const Outline& all, std::string_view path) {
  const std::string_view name = path.substr(0, path.find('.'));
  const std::string_view rest = name.size() == path.size() ? std::string_view() : path.substr(name.size() + 1);
  for (const Option& option : all) {
    if (option.name == name) {
      if (rest.empty()) return &option;
      if (const Option* inside = option_at(option.options, rest)) return inside;
    }
    for (const auto& alternative : option.alternatives)
      if (const Option* own = option_at(alternative.options, path)) return own;
  }
  return nullptr;
}

Suggestion suggestion(std::string_view key, const std::string& section, const std::vector<const Option*>& siblings,
                      const Outline& all) {
  if (key.size() > kMaxKeyLength) return {};
  if (key.find(':') != std::string_view::npos) return {" (a space must follow the colon)", {}};

  const std::string near = nearest_sibling(key, siblings);
  if (!near.empty() && folded(near) == folded(key)) return did_you_mean({near});
  std::vector<Named> named;
  collect(all, "", named);
  std::vector<std::string> elsewhere;  // keys of this name in other sections
  for (const Named& one : named)
    if (one.name == folded(key) && one.path != join_path(section, key) && (section.empty() || !is_generic(key)))
      add_once(elsewhere, one.path);

  if (const Lead* lead = lead_of_key(section, key)) {  // a guess from letters must not beat the table
    const bool knows_section = lead->theirs.find('.') != std::string::npos;
    if (!knows_section && differ_by_plural(key, near)) return did_you_mean({near});
    Suggestion from_table = suggestion_of(*lead, all);
    if (!from_table.text.empty() && !knows_section && !from_table.paths.empty()) {
      for (const std::string& path : elsewhere) add_once(from_table.paths, path);
      return did_you_mean(from_table.paths, lead->note);
    }
    if (!from_table.text.empty()) return from_table;
  }
  if (!near.empty() && edit_distance(key, near) <= 1) return did_you_mean({near});
  if (!elsewhere.empty()) return did_you_mean(elsewhere);
  if (!near.empty()) return did_you_mean({near});
  if (!section.empty()) return {};  // from here on it would be a guess from letters in a foreign section

  std::vector<std::string> paths;
  size_t min_distance = SIZE_MAX;
  for (const Named& one : named) {
    const size_t distance = match_distance(key, one.name);
    if (distance < min_distance) min_distance = distance, paths.clear();
    if (distance == min_distance && min_distance != SIZE_MAX) add_once(paths, one.path);
  }
  return did_you_mean(paths);
}

std::string text_of(const Lead& lead, const Outline& all) { return suggestion_of(lead, all).text; }

namespace {

/// "logging.sinks" of "logging.sinks[1]".
std::string without_index(const std::string& path) {
  return path.ends_with(']') ? path.substr(0, path.rfind('[')) : path;
}

/// The value at a full path, which may end in the index of a list's item; null: the sources give none.
const Value* value_at(const Value& map, const std::string& path) {
  const std::string list = without_index(path);
  const Value* at = &map;
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    at = at->is_map() ? at->find(name) : nullptr;
    if (at == nullptr) return nullptr;
  }
  if (list.size() == path.size()) return at;
  const size_t index = std::strtoul(path.c_str() + list.size() + 1, nullptr, 10);
  return at->is_list() && index < at->items.size() ? &at->items[index] : nullptr;
}

/// What to write in place of a word that means nothing, or of a number that stands for none.
std::string word_for_nothing(const Value& value, const Option& option) {
  const std::string word = folded(value.text);
  if (word == "none" || word == "nil" || word == "undefined") return "null";
  const bool may_be_null = option.nullable && !value.quoted;
  return may_be_null && (word == "_1" || word == "0" || word == "0.0" || word == "false") ? "null" : "";
}

/// "scheduler.name: cosine" for a section that is given a word: its key that takes a name.
std::string named_option(const Value& value, const Option& section, const std::string& path) {
  if (section.kind != Option::Kind::section) return "";
  for (const Option& option : section.options)
    if (option.kind == Option::Kind::variant || option.name == "name")
      return fmt::format("{}.{}: {}", path, option.name, value.text);
  return "";
}

}  // namespace

std::string value_lead(const std::string& path, const Value& value, const Outline& all) {
  if (const Lead* lead = lead_of_value(without_index(path), value.text)) {
    if (lead->value.empty()) return fmt::format(" ({})", reason_of(*lead));
    const bool is_map = lead->value.starts_with('{') && lead->value.find(',') == std::string::npos;
    const std::string written =  // "scheduler.name: cosine" for the section scheduler and {name: cosine}
        is_map ? fmt::format("{}.{}", path, lead->value.substr(1, lead->value.size() - 2)) : lead->value;
    return fmt::format("{}'{}'?{})", kDidYouMean, written, lead->note.empty() ? "" : " " + lead->note);
  }
  const Option* option = option_at(all, path);
  if (option == nullptr) return "";
  std::string instead = word_for_nothing(value, *option);
  if (instead.empty()) instead = named_option(value, *option, path);
  return instead.empty() ? "" : fmt::format("{}'{}'?)", kDidYouMean, instead);
}

void add_value_leads(std::vector<Problem>& problems, const Value& map, const Outline& all) {
  for (Problem& problem : problems) {
    const Value* value = value_at(map, problem.key);
    if (value == nullptr || !value->is_scalar() || problem.message.starts_with("unknown key")) continue;
    const std::string lead = value_lead(problem.key, *value, all);
    if (lead.empty()) continue;
    for (const std::string_view earlier : {kDidYouMean, kWrite})
      problem.message.erase(std::min(problem.message.find(earlier), problem.message.size()));
    problem.message += lead;
  }
}

}  // namespace trainopt
