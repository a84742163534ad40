#include "config/suggest.h"

#include "config/known_spellings.h"
#include "config/outline.h"

#include <algorithm>

namespace trainopt {
namespace {

constexpr size_t kMaxKeyLength = 64;  // longer keys are not typing errors

constexpr size_t kMinPrefixLength = 3;  // shorter prefixes match too many names

/// The shortest of `words` that begins with `word`; empty if none does.
std::string_view completion_of(std::string_view word, std::span<const std::string_view> words) {
  std::string_view shortest;
  if (word.size() < kMinPrefixLength) return shortest;
  for (const auto candidate : words)
    if (folded(candidate).starts_with(folded(word)) && (shortest.empty() || candidate.size() < shortest.size()))
      shortest = candidate;
  return shortest;
}

size_t near_enough(std::string_view word) { return std::max<size_t>(1, word.size() / 3); }

/// The edit distance of `word` and `candidate`; SIZE_MAX if they are too far apart.
size_t match_distance(std::string_view word, std::string_view candidate) {
  const size_t longer = std::max(word.size(), candidate.size()), shorter = std::min(word.size(), candidate.size());
  if (longer - shorter > near_enough(candidate)) return SIZE_MAX;  // rejects most words cheaply
  const size_t distance = edit_distance(word, candidate);
  return distance <= near_enough(candidate) ? distance : SIZE_MAX;
}

struct Named {
  std::string name, path;                // name: the key or one of its aliases
  const Spellings* spellings = nullptr;  // the key's spellings
};

void collect(const Outline& outline, const std::string& section, std::vector<Named>& all) {
  for (const Option& option : outline) {
    const std::string path = join_path(section, option.name);
    all.push_back({option.name, path, &option.spellings});
    for (const auto& alias : option.aliases) all.push_back({alias, path, nullptr});
    collect(option.options, path, all);
    for (const auto& alternative : option.alternatives) collect(alternative.options, section, all);
  }
}

std::string did_you_mean(const std::vector<std::string>& paths) {
  std::string text;
  for (const auto& path : paths) text += (text.empty() ? "" : " or ") + fmt::format("'{}'", path);
  return text.empty() ? "" : fmt::format(" (did you mean {}?)", text);
}

/// The path, and the value to write after it.
std::string with_value(std::string_view path, std::string_view value) {
  return std::string(path) + (value.empty() ? "" : ": " + std::string(value));
}

void add_once(std::vector<std::string>& paths, const std::string& path) {
  constexpr size_t kMaxNames = 3;
  if (paths.size() < kMaxNames && std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
}

}  // namespace

std::string folded(std::string_view word) {
  std::string text(word);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(c == '-' || c == ' ' ? '_' : std::tolower(c)); });
  return text;
}

std::string_view why_unsupported(std::string_view key) {
  for (const UnsupportedOption& other : kUnsupportedOptions)
    if (folded(key) == other.theirs) return other.why;
  return "";
}

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

std::string suggestion(std::string_view key, const std::string& section, const std::vector<const Option*>& siblings,
                       const Outline& all) {
  if (key.size() > kMaxKeyLength) return "";
  if (key.find(':') != std::string_view::npos) return " (a space must follow the colon)";

  std::vector<std::string_view> near_names;
  for (const Option* option : siblings) {
    near_names.push_back(option->name);
    near_names.insert(near_names.end(), option->aliases.begin(), option->aliases.end());
  }
  const std::string near = closest_match(key, near_names);
  if (!near.empty() && edit_distance(key, near) <= 1) return did_you_mean({near});

  if (const auto why = why_unsupported(key); !why.empty()) return fmt::format(" ({})", why);

  std::vector<Named> named;
  collect(all, "", named);
  std::vector<KnownSpelling> known;
  for (const Named& one : named)
    if (one.spellings)
      for (const auto& [theirs, value, why] : *one.spellings) {
        if (theirs != folded(key)) continue;
        if (!why.empty()) return fmt::format(" ({})", why);
        known.push_back({theirs, one.path, value});
      }
  known.insert(known.end(), kKnownSpellings.begin(), kKnownSpellings.end());
  std::vector<std::string> paths;
  for (const Named& one : named)
    if (one.name == folded(key) && one.path != join_path(section, key)) add_once(paths, one.path);
  for (const KnownSpelling& spelling : known) {
    const auto same_path = [&](const Named& one) { return one.path == spelling.ours; };
    if (spelling.theirs == folded(key) && std::any_of(named.begin(), named.end(), same_path))
      add_once(paths, with_value(spelling.ours, spelling.value));
  }
  if (!paths.empty()) return did_you_mean(paths);
  if (!near.empty()) return did_you_mean({near});

  size_t min_distance = SIZE_MAX;
  for (const Named& one : named) {
    const size_t distance = match_distance(key, one.name);
    if (distance < min_distance) min_distance = distance, paths.clear();
    if (distance == min_distance && min_distance != SIZE_MAX) add_once(paths, one.path);
  }
  return did_you_mean(paths);
}

}  // namespace trainopt
