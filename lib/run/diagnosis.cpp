#include "run/diagnosis.h"

#include "base/shell_command.h"

#include <fmt/format.h>

#include <algorithm>

namespace fs = std::filesystem;

namespace trainopt {
namespace {

constexpr size_t kShownAdvice = 3;

/// The proposals with an estimated gain above the noise.
std::vector<Proposal> standing_out(std::vector<Proposal> proposals) {
  std::erase_if(proposals, [](const Proposal& each) { return !each.stands_out; });
  return proposals;
}

RunTimes times_of(const Plan& plan, const RunOutcome& outcome, const StepTimes& step, int64_t steps, double records_s) {
  RunTimes times{.steps = steps,
                 .step = step,
                 .evaluation_s = outcome.between.evaluation_s,
                 .checkpoint_s = outcome.between.checkpoint_s,
                 .records_s = records_s,
                 .loader_threads = plan.loader.num_workers,
                 .copies_ahead = plan.device.is_cpu() || plan.loader.non_blocking,
                 .memory_bound_pct = plan.peak.memory_bound_pct};
  if (outcome.loading) times.loader = LoaderShares::of(*outcome.loading);
  if (plan.data.files) times.storage = plan.data.files->use();
  if (outcome.trace.step > 0) times.operations = outcome.trace.calls([](const TracedOperation&) { return true; });
  if (plan.device.is_cpu() && plan.peak.operation_us && times.operations)
    times.operations_ms = *plan.peak.operation_us / 1e3 * static_cast<double>(*times.operations);
  return times;
}

std::vector<Proposal> shown(const std::vector<Proposal>& proposals) {
  std::vector<Proposal> best = best_of_each_rule(standing_out(proposals));
  if (best.size() > kShownAdvice) best.resize(kShownAdvice);
  return best;
}

std::string command_for(const Proposal& proposal, const fs::path& run_dir, int64_t ranks) {
  std::string command = ranks > 1 ? fmt::format("trainopt launch -n {} -- compare ", ranks) : "trainopt compare ";
  command += shell_quoted((run_dir / "recipe.yaml").string());
  for (const std::string& word : proposal.change) command += " --with " + shell_quoted(word);
  const std::string_view part = proposal.rule->part;
  return command + (part == "evaluation" || part == "checkpoints" ? " --whole" : "");  // which is otherwise left out
}

/// The observed step is one of the first.
std::optional<double> page_faults_per_step(const StepTrace& trace) {
  if (trace.later_steps > 0)
    return static_cast<double>(trace.later_page_faults) / static_cast<double>(trace.later_steps);
  return trace.step > 0 ? std::optional(static_cast<double>(trace.page_faults)) : std::nullopt;
}

}  // namespace

std::optional<RunDiagnosis> diagnose(const Recipe& recipe, const Plan& plan, const RunOutcome& outcome,
                                     const Summary& summary, double records_s) {
  const auto step = summary.step_times();
  if (!step) return std::nullopt;
  const RunTimes times = times_of(plan, outcome, *step, summary.steps(), records_s);
  RunDiagnosis diagnosis{.limit = find_limit(times), .proposals = {}};
  diagnosis.proposals = propose({.recipe = recipe,
                                 .plan = plan,
                                 .times = times,
                                 .limit = diagnosis.limit,
                                 .peaks = plan.peak.measured,
                                 .page_faults = page_faults_per_step(outcome.trace),
                                 .memory_peak_pct = summary.memory_peak_pct()});
  return diagnosis;
}

Json to_json(const std::optional<RunDiagnosis>& diagnosis, const fs::path& run_dir, const Plan& plan) {
  Json json = {{"limit", diagnosis ? to_json(diagnosis->limit) : Json()},
               {"advice", Json::array()},
               {"candidates", Json::array()}};
  if (!diagnosis) return json;
  for (const Proposal& each : diagnosis->proposals)
    json["candidates"].push_back({{"what", each.rule->what},
                                  {"change", each.change},
                                  {"from", each.from ? Json(*each.from) : Json()},
                                  {"estimated_ratio", each.ratio},
                                  {"exactness", word_of(each.exactness)},
                                  {"evidence", each.evidence},
                                  {"needs", each.rule->needs},
                                  {"command", command_for(each, run_dir, plan.position.ranks)}});
  for (size_t i = 0; i < diagnosis->proposals.size(); ++i)
    if (diagnosis->proposals[i].stands_out) json["advice"].push_back(json["candidates"][i]);
  return json;
}

std::vector<SwitchLine> lines_of(const std::optional<RunDiagnosis>& diagnosis, const fs::path& run_dir,
                                 const Plan& plan) {
  std::vector<SwitchLine> lines;
  if (!diagnosis) return lines;
  lines.push_back({"limited by", diagnosis->limit.text});
  for (const Proposal& each : shown(diagnosis->proposals)) {
    std::string needs = *each.rule->needs ? fmt::format("; needs {}", each.rule->needs) : "";
    if (each.exactness == Exactness::new_math) needs += "; changes the training";
    lines.push_back({"advice", fmt::format("{}, estimated {:+.0f} % ({}{}); measure it: {}", each.rule->what,
                                           100 * (each.ratio - 1), each.evidence, needs,
                                           command_for(each, run_dir, plan.position.ranks))});
  }
  return lines;
}

}  // namespace trainopt
