#include "run/start.h"

#include "base/files/files.h"
#include "base/log.h"
#include "checkpoint/store.h"
#include "recipe/make_plan.h"
#include "recipe/plan_text.h"
#include "recipe/resume.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/evaluation.h"

#include <fmt/ranges.h>

namespace trainopt {
namespace {

Json to_json(const RunStart& start) {
  return {{"path", start.folder.path.string()},
          {"continues", start.folder.continues},
          {"own", start.folder.own},
          {"checkpoint", start.checkpoint ? Json(start.checkpoint->string()) : Json()},
          {"already_finished", start.already_finished}};
}

RunStart start_from(const Json& json) {
  RunStart start{.folder = {.path = json.at("path").get<std::string>(),
                            .continues = json.at("continues").get<bool>(),
                            .own = json.at("own").get<bool>(),
                            .resumes = false,
                            .from = std::nullopt},
                 .checkpoint = std::nullopt,
                 .already_finished = json.at("already_finished").get<bool>()};
  if (const Json& checkpoint = json.at("checkpoint"); !checkpoint.is_null())
    start.checkpoint = checkpoint.get<std::string>();
  return start;
}

/// The state to resume from, if there is one.
std::optional<ArchiveReader> find_state(const RunStart& start) {
  if (!start.folder.resumes) return std::nullopt;
  if (start.folder.from) return read_checkpoint(*start.folder.from);
  return read_newest_checkpoint(start.checkpoints(),
                                [](const std::string& why) { log_warning("{}; trying the previous one", why); });
}

/// Compares the state with the recipe and notes in the plan what follows.
void check_state(const std::optional<ArchiveReader>& state, const RunFolder& folder, const Recipe& recipe, Plan& plan) {
  if (!folder.resumes) return;
  if (!state) {
    if (recipe.checkpoint.resume != "none")  // a restart says so itself
      plan.notes.push_back(fmt::format("checkpoint.resume: auto found no checkpoint in {}; starting from scratch",
                                       folder.path.string()));
    return;
  }
  const Recipe stored = load_recipe({.files = {state->where() / kRecipeFile}, .overrides = {}}, std::nullopt).recipe;
  // As warnings, which reach run.log and are shown with --quiet, too: from here on the numbers may be others.
  for (const auto& note : check_resume(stored, recipe, state->values().value("ranks", int64_t{1}), plan.position.ranks))
    log_warning("{}", note);
  plan.notes.push_back(fmt::format("resumes after step {} from {}", state->integer("step"), state->where().string()));
}

/// Whether the evaluation after the checkpoint's step found what the plan is to learn.
bool has_reached_target(const ArchiveReader& state, const Plan& plan) {
  const Json &evaluation = state.value("evaluation"), &at = state.value("evaluated_at");
  return !evaluation.is_null() && at == state.value("step") &&
         reached(goal_of(plan.train.target), evaluation_from(evaluation));
}

/// Whether the run in this directory finished and the recipe asks for no further steps.
bool already_finished(const std::filesystem::path& run_dir, const ArchiveReader& state, const Plan& plan) {
  const bool all_steps = plan.steps && state.integer("step") >= *plan.steps;
  if ((!all_steps && !has_reached_target(state, plan)) || kind_of(run_dir / "summary.json") == PathKind::absent)
    return false;
  const Json summary = parse_json(read_file(run_dir / "summary.json", ExitCode::storage), /*allow_exceptions=*/false);
  return summary.is_object() && summary.value("status", "") == "done" &&
         summary.value("steps", int64_t{0}) == state.integer("step");
}

/// So that a restart finds its run directory.
void require_run_dir(const Recipe& recipe, const Restarts& restarts) {
  if (restarts.allowed > 0 && !recipe.run_dir)
    throw UserError(
        fmt::format("a restart goes on in its run directory, so set run_dir (or --run-dir) with --max-restarts {}",
                    restarts.allowed));
}

/// Runs on rank 0 only.
void claim_run_directory(const Recipe& recipe, const Restarts& restarts, const std::string& job, Plan& plan,
                         ClaimedRun& claimed) {
  require_run_dir(recipe, restarts);
  RunStart& start = claimed.start;
  start.folder = choose_run_directory(recipe, restarts.done > 0);
  claimed.folder = std::make_unique<HeldFolder>(start.folder.path);
  claimed.lock.emplace(start.folder.path, job, restarts.done > 0 && start.folder.continues && !job.empty());
  if (!start.folder.continues) require_unused(start.folder.path);  // again: another start may have been faster
  log_to_file(start.folder.path / "run.log");
  if (start.folder.continues) remove_drafts(start.checkpoints());
  claimed.state = find_state(start);
  check_state(claimed.state, start.folder, recipe, plan);
  if (restarts.done > 0)
    log_warning("restart {} of {}: {}", restarts.done, restarts.allowed,
                claimed.state ? fmt::format("goes on after step {}", claimed.state->integer("step"))
                              : "begins again, because no checkpoint was saved");
  if (!claimed.state) return;
  start.checkpoint = claimed.state->where();
  start.already_finished = start.folder.continues && already_finished(start.folder.path, *claimed.state, plan);
}

}  // namespace

ClaimedRun claim_run(const Recipe& recipe, Plan& plan, JobMember& member) {
  ClaimedRun claimed;
  claimed.start = start_from(member.from_rank_0("start", [&] {
    claim_run_directory(recipe, member.restarts(), member.mark(), plan, claimed);
    return to_json(claimed.start);
  }));
  if (!claimed.folder) claimed.folder = std::make_unique<HeldFolder>(claimed.start.folder.path);
  return claimed;
}

void read_state(ClaimedRun& claimed) {
  if (claimed.start.checkpoint) claimed.state = read_checkpoint(*claimed.start.checkpoint);
}

void prepare_run_directory(const RunStart& start, std::optional<int64_t> resumed_step, const Recipe& recipe,
                           const Plan& plan) {
  const auto& run_dir = start.folder.path;
  if (resumed_step)
    if (const auto newer = abandon_newer(start.checkpoints(), *resumed_step); !newer.empty())
      log_info("checkpoints newer than the one to resume from are kept as abandoned-step-…: steps {}",
               fmt::join(newer, ", "));
  remove_file(run_dir / "summary.json");  // the previous process's; this one writes its own at the end
  write_file(run_dir / "recipe.yaml", recipe_yaml(recipe));
  Json json = plan_json(plan);
  for (const UnusedSwitch& one : unused_switches(recipe, plan))
    json["unused_switches"].push_back({{"change", one.change}, {"text", one.text}});
  write_file(run_dir / "plan.json", json_text(json, 2) + "\n");
}

}  // namespace trainopt
