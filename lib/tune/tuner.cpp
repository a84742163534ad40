#include "tune/tuner.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <vector>

namespace trainopt {
namespace {

std::string key_of(const std::string& word) { return word.substr(0, word.find('=')); }

void decide(TuningStep& step) {
  const Trial& trial = step.trial;
  step.kept = false;
  if (!trial.failure.empty())
    step.reason = trial.failure;
  else if (trial.verdict != Verdict::pays)
    step.reason = text(trial.verdict);
  else if (step.candidate.exactness != Exactness::new_math && trial.numbers_agree == false)
    step.reason = "faster, but its numbers disagree";
  else if (step.candidate.exactness != Exactness::new_math && trial.no_time_for_numbers)
    step.reason = "faster, but there was no time to compare its numbers";
  else
    step.kept = true, step.reason = trial.numbers_agree || step.candidate.exactness == Exactness::new_math
                                        ? "pays"
                                        : "pays; its numbers cannot be compared";
}

/// The number in a change's first word; null if it has none.
std::optional<double> number_in(const Words& change) {
  const std::string& word = change.front();
  const size_t begin = word.find('=') + 1;
  double number = 0;
  const auto [end, error] = std::from_chars(word.data() + begin, word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? std::optional(number) : std::nullopt;
}

/// Whether `tried` lies between the present number and that of `candidate`.
bool lies_before(const Candidate& tried, const Candidate& candidate) {
  if (!candidate.from || tried.from != candidate.from || tried.what != candidate.what) return false;
  const auto there = number_in(tried.change), here = number_in(candidate.change);
  if (!there || !here) return false;
  const double before = *there - *candidate.from, beyond = *here - *candidate.from;
  return before * beyond > 0 && std::abs(before) < std::abs(beyond);
}

class Tuner {
 public:
  Tuner(TuningBench& bench, const TuningOptions& options, Tuning so_far)
      : bench_(bench), options_(options), tuning_(std::move(so_far)) {}

  Tuning run(const std::function<void(const Tuning&)>& keep) {
    tuning_.ended.clear();
    tuning_.not_allowed.clear();
    Diagnosis diagnosis = diagnose();
    keep(tuning_);
    while (!bench_.over()) {
      if (next_level() > kHighestLevel) {
        tuning_.ended = "no further trial could be told from chance";
        break;
      }
      const Candidate* next = choose(diagnosis);
      if (!next) {
        tuning_.ended = "nothing left to try";
        break;
      }
      const std::optional<TuningStep> step = take(*next);
      if (!step) break;
      tuning_.steps.push_back(*step);
      if (step->kept) go_on_from(diagnosis);
      keep(tuning_);
    }
    if (tuning_.ended.empty()) tuning_.ended = bench_.stopped() ? kTuningStopped : kTuningTimeIsUp;
    keep(tuning_);
    return std::move(tuning_);
  }

 private:
  double next_level() const { return level_of_trial(options_.level, tuning_.steps.size() + 1); }

  Diagnosis diagnose() {
    if (bench_.over()) return {};
    Diagnosis diagnosis = bench_.diagnose(tuning_.change());
    tuning_.limits.push_back(diagnosis.limit);
    return diagnosis;
  }

  /// Diagnoses the recipe with the step that was just kept.
  void go_on_from(Diagnosis& diagnosis) {
    try {
      diagnosis = diagnose();
    } catch (const UserError& error) {  // named recovery: the recipe ran before, so the tuning goes on without the step
      tuning_.steps.back().kept = false;
      tuning_.steps.back().reason = error.what();
    }
  }

  /// The last of the steps that tried this change; null if none did.
  const TuningStep* last_look(const Words& change) const {
    const auto step = std::find_if(tuning_.steps.rbegin(), tuning_.steps.rend(),
                                   [&](const TuningStep& each) { return each.candidate.change == change; });
    return step == tuning_.steps.rend() ? nullptr : &*step;
  }
  int64_t looks(const Words& change) const {
    return std::count_if(tuning_.steps.begin(), tuning_.steps.end(),
                         [&](const TuningStep& each) { return each.candidate.change == change; });
  }

  bool is_beyond_a_failure(const Candidate& candidate) const {
    return std::any_of(tuning_.steps.begin(), tuning_.steps.end(), [&](const TuningStep& step) {
      const bool decided = step.trial.verdict == Verdict::costs || step.trial.verdict == Verdict::no_effect;
      return decided && lies_before(step.candidate, candidate);
    });
  }

  bool is_allowed(const Candidate& candidate) const {
    return candidate.exactness != Exactness::new_math || options_.allow_new_math;
  }
  void note_not_allowed(const Candidate& candidate) {
    const bool noted = std::any_of(tuning_.not_allowed.begin(), tuning_.not_allowed.end(),
                                   [&](const Candidate& other) { return other.change == candidate.change; });
    if (!noted) tuning_.not_allowed.push_back(candidate);
  }

  /// The first allowed candidate that was not tried, or else the undecided one that seemed to gain most; null if there
  /// is none.
  const Candidate* choose(const Diagnosis& diagnosis) {
    const Candidate* undecided = nullptr;
    double most = 1;
    for (const Candidate& each : diagnosis.candidates) {
      if (!is_allowed(each)) {
        note_not_allowed(each);
        continue;
      }
      if (is_beyond_a_failure(each)) continue;
      const TuningStep* last = last_look(each.change);
      if (!last) return &each;
      const Trial& trial = last->trial;
      const bool open = trial.failure.empty() && trial.verdict == Verdict::inconclusive && trial.numbers_agree != false;
      if (!open || trial.ratio.value_or(1) <= most || looks(each.change) >= kMostLooks) continue;
      undecided = &each;
      most = *trial.ratio;
    }
    return undecided;
  }

  /// nullopt if the user stopped it.
  std::optional<TuningStep> take(const Candidate& candidate) {
    TuningStep step{.candidate = candidate, .level = next_level()};
    const Words best = tuning_.change();
    step.trial = bench_.compare(best, merged(best, candidate.change), step.level, looks(candidate.change));
    if (bench_.stopped()) return std::nullopt;
    decide(step);
    return step;
  }

  TuningBench& bench_;
  const TuningOptions& options_;
  Tuning tuning_;
};

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }
Json json_of(const std::optional<Interval>& value) { return value ? Json{value->low, value->high} : Json(); }

Json to_json(const Candidate& candidate) {
  return {{"what", candidate.what},          {"change", candidate.change},
          {"from", json_of(candidate.from)}, {"estimate", candidate.estimate},
          {"evidence", candidate.evidence},  {"exactness", word_of(candidate.exactness)}};
}

Exactness exactness_from(const std::string& word) {
  for (const auto each : {Exactness::same_bits, Exactness::same_math, Exactness::new_math})
    if (word_of(each) == word) return each;
  throw UserError(fmt::format("there is no exactness of this name: {}", word), ExitCode::data);
}

Candidate candidate_from(const Json& json, const char* estimate) {
  return {.what = json.at("what"),
          .change = json.at("change").get<Words>(),
          .from = json.at("from").is_null() ? std::nullopt : std::optional(json.at("from").get<double>()),
          .estimate = json.at(estimate),
          .exactness = exactness_from(json.at("exactness")),
          .evidence = json.at("evidence")};
}

Verdict verdict_from(const std::string& word) {
  for (const auto each : {Verdict::pays, Verdict::costs, Verdict::no_effect})
    if (text(each) == word) return each;
  return Verdict::inconclusive;
}

}  // namespace

Words Tuning::change() const {
  Words all;
  for (const TuningStep& step : steps)
    if (step.kept) all = merged(all, step.candidate.change);
  return all;
}

double level_of_trial(double level, size_t number) {
  constexpr double kSum = 2.6123753486854883;  // ζ(3/2): of n^(−3/2) over all n
  return 1 - (1 - level) * std::pow(static_cast<double>(number), -1.5) / kSum;
}

Words merged(const Words& words, const Words& more) {
  Words all;
  for (const std::string& word : words) {
    const bool replaced =
        std::any_of(more.begin(), more.end(), [&](const std::string& other) { return key_of(other) == key_of(word); });
    if (!replaced) all.push_back(word);
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Tuning tune(TuningBench& bench, const TuningOptions& options, Tuning so_far,
            const std::function<void(const Tuning&)>& keep) {
  return Tuner(bench, options, std::move(so_far)).run(keep);
}

Json to_json(const Tuning& tuning) {
  Json json = {
      {"limits", tuning.limits}, {"steps", Json::array()}, {"not_allowed", Json::array()}, {"ended", tuning.ended}};
  for (const TuningStep& step : tuning.steps) {
    Json one = to_json(step.candidate);
    one.update({{"ratio", json_of(step.trial.ratio)},
                {"interval", json_of(step.trial.interval)},
                {"speed", json_of(step.trial.speed)},
                {"level", step.level},
                {"verdict", text(step.trial.verdict)},
                {"numbers_agree", step.trial.numbers_agree ? Json(*step.trial.numbers_agree) : Json()},
                {"kept", step.kept},
                {"reason", step.reason}});
    json["steps"].push_back(std::move(one));
  }
  for (const Candidate& candidate : tuning.not_allowed) json["not_allowed"].push_back(to_json(candidate));
  return json;
}

Tuning tuning_from(const Json& json) {
  Tuning tuning{.limits = json.at("limits").get<std::vector<std::string>>(), .ended = json.at("ended")};
  for (const Json& one : json.at("steps")) {
    TuningStep step{.candidate = candidate_from(one, "estimate"),
                    .level = one.at("level"),
                    .kept = one.at("kept"),
                    .reason = one.at("reason")};
    step.trial.verdict = verdict_from(one.at("verdict"));
    if (const Json& ratio = one.at("ratio"); !ratio.is_null()) step.trial.ratio = ratio.get<double>();
    if (const Json& speed = one.at("speed"); !speed.is_null()) step.trial.speed = speed.get<double>();
    if (const Json& ends = one.at("interval"); !ends.is_null()) step.trial.interval = Interval{ends.at(0), ends.at(1)};
    if (const Json& agree = one.at("numbers_agree"); !agree.is_null()) step.trial.numbers_agree = agree.get<bool>();
    tuning.steps.push_back(std::move(step));
  }
  for (const Json& one : json.at("not_allowed")) tuning.not_allowed.push_back(candidate_from(one, "estimate"));
  return tuning;
}

Candidate candidate_from(const Json& advice) { return candidate_from(advice, "estimated_ratio"); }

std::string annotated(const std::string& yaml, const std::map<std::string, std::string>& comments) {
  std::istringstream lines(yaml);
  std::string text;
  std::vector<std::string> path;  // the line's path, one name for each two spaces of indentation
  for (std::string line; std::getline(lines, line);) {
    const size_t indent = line.find_first_not_of(' '), colon = line.find(':');
    if (indent == line.npos || line[indent] == '-' || colon == line.npos) {
      text += line + "\n";
      continue;
    }
    path.resize(indent / 2);
    path.push_back(line.substr(indent, colon - indent));
    std::string key;
    for (const std::string& name : path) key += (key.empty() ? "" : ".") + name;
    const auto comment = comments.find(key);
    text += line + (comment == comments.end() ? "" : "  # " + comment->second) + "\n";
  }
  return text;
}

}  // namespace trainopt
