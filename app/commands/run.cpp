// trainopt run RECIPE...: train.
#include "app/commands.h"
#include "app/explain.h"
#include "app/job_member.h"
#include "app/measure_options.h"
#include "app/run_directory.h"
#include "app/run_report.h"
#include "app/signals.h"
#include "base/counted.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/run_lock.h"
#include "metrics/watchdog.h"
#include "comm/nccl_environment.h"
#include "device/device.h"
#include "device/process.h"
#include "compare/ablation_report.h"
#include "recipe/make_plan.h"
#include "recipe/plan_text.h"
#include "recipe/resume.h"
#include "train/checkpoint_reader.h"
#include "train/checkpoint_writer.h"
#include "train/inject.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <exception>

namespace trainopt {
namespace {

constexpr const char* kCheckpoints = "checkpoints";

/// What the run is, written before it starts.
void write_beginning(const std::filesystem::path& run_dir, const Recipe& recipe, const Plan& plan) {
  write_file(run_dir / "recipe.yaml", recipe_yaml(recipe));
  write_file(run_dir / "plan.json", plan_json(plan).dump(2) + "\n");
}

/// Where a run begins: rank 0 finds out, all ranks do the same.
struct Beginning {
  RunFolder folder;                                 ///< `from`: what the recipe names, until it is known what is read
  std::optional<std::filesystem::path> checkpoint;  ///< to go on from
  bool nothing_left = false;
};

Json to_json(const Beginning& beginning) {
  return {{"path", beginning.folder.path.string()},
          {"continues", beginning.folder.continues},
          {"checkpoint", beginning.checkpoint ? Json(beginning.checkpoint->string()) : Json()},
          {"nothing_left", beginning.nothing_left}};
}

Beginning beginning_from(const Json& json) {
  const Json& checkpoint = json.at("checkpoint");
  return {.folder = {.path = json.at("path").get<std::string>(),
                     .continues = json.at("continues").get<bool>(),
                     .from = std::nullopt},
          .checkpoint =
              checkpoint.is_null() ? std::nullopt : std::optional<std::filesystem::path>(checkpoint.get<std::string>()),
          .nothing_left = json.at("nothing_left").get<bool>()};
}

/// The state to go on from, if there is one.
std::optional<ArchiveReader> read_state(const RunFolder& folder, const std::filesystem::path& checkpoints,
                                        const Recipe& recipe) {
  if (recipe.checkpoint.resume == "none") return std::nullopt;
  if (folder.from) return read_checkpoint(*folder.from);
  return read_newest_checkpoint(checkpoints,
                                [](const std::string& why) { spdlog::warn("{}; trying the one before", why); });
}

/// Compares it with the recipe; says in the plan what it means.
void check_state(const std::optional<ArchiveReader>& state, const RunFolder& folder, const Recipe& recipe, Plan& plan) {
  if (recipe.checkpoint.resume == "none") return;
  if (!state) {
    plan.notes.push_back(
        fmt::format("checkpoint.resume: auto finds no checkpoint in {}: this is the beginning", folder.path.string()));
    return;
  }
  const Recipe stored = load_recipe({.files = {state->where() / kRecipeFile}, .overrides = {}}, std::nullopt).recipe;
  for (auto& note : check_resume(stored, recipe, state->values().value("ranks", int64_t{1}), plan.position.ranks))
    plan.notes.push_back(std::move(note));
  plan.notes.push_back(fmt::format("goes on after step {} of {}", state->integer("step"), state->where().string()));
}

/// Whether the run directory is of a run that came to its end, and the recipe asks for no more.
bool nothing_left(const std::filesystem::path& run_dir, const ArchiveReader& state, const Plan& plan) {
  if (!plan.steps || state.integer("step") < *plan.steps || !std::filesystem::exists(run_dir / "summary.json"))
    return false;
  const Json summary =
      Json::parse(read_file(run_dir / "summary.json", ExitCode::storage), nullptr, /*allow_exceptions=*/false);
  return summary.is_object() && summary.value("status", "") == "done" &&
         summary.value("steps", int64_t{0}) == state.integer("step");
}

/// Hands on what the trainer says. Until there is a report, and on other ranks than the first, only the watchdog hears
/// it: a run directory that a run goes on in stays as it is until the trainer has taken the state.
class Relay : public RunListener {
 public:
  Relay(Watchdog& watchdog, JobMember& member) : watchdog_(watchdog), member_(member) {}
  void step_done(const StepRecord& row) override {
    if (report) report->step_done(row);
  }
  void evaluated(int64_t step, const EvaluationResult& result) override {
    if (report) report->evaluated(step, result);
  }
  void not_finite(const NonfiniteStep& event) override {
    if (report) report->not_finite(event);
  }
  void save(ArchiveWriter& archive) override {
    if (report) report->save(archive);
  }
  void at(const char* stage, int64_t steps) override {
    watchdog_.at(stage, steps);
    member_.at(stage, steps);
  }

  std::optional<RunReport> report;  ///< rank 0's

 private:
  Watchdog& watchdog_;
  JobMember& member_;
};

CheckpointWriterOptions checkpoint_options(const RunFolder& folder, const std::filesystem::path& checkpoints,
                                           const Recipe& recipe, const std::optional<ArchiveReader>& state,
                                           const JobMember& member) {
  CheckpointWriterOptions options{.root = checkpoints,
                                  .every_n_steps = recipe.checkpoint.every_n_steps,
                                  .keep_last = recipe.checkpoint.keep_last,
                                  .background = recipe.checkpoint.background};
  if (state && folder.continues) options.keep.push_back(state->integer("step"));
  options.recipe = recipe_yaml(recipe);
  options.versions = {{"trainopt", TRAINOPT_VERSION}, {"libtorch", TORCH_VERSION}};
  options.before_commit = [run_dir = folder.path] { RunReport::sync_records(run_dir); };
  options.requested = &save_request();
  options.position = member.position();
  if (!member.alone()) {
    options.put = member.put();
    options.get = member.get();
  }
  return options;
}

RunEnd end_of(const RunOutcome& outcome, const Plan& plan, const std::optional<int64_t>& saved_step) {
  if (outcome.stopped_by_signal != 0)
    return {
        "stopped",
        fmt::format("by signal {} after {}{}", outcome.stopped_by_signal, counted(outcome.steps, "step"),
                    saved_step == outcome.steps ? fmt::format(", saved as {}", checkpoint_name(outcome.steps)) : ""),
        128 + outcome.stopped_by_signal};
  return {
      "done",
      !plan.steps || outcome.steps < *plan.steps
          ? fmt::format("after {} (train.max_time: {})", counted(outcome.steps, "step"), to_text(*plan.train.max_time))
          : fmt::format("after {}", counted(outcome.steps, "step")),
      0};
}

RunEnd failure(const JobMember::End& end) { return {"failed", end.message, static_cast<int>(end.code)}; }

/// What ended the run is what the user must read, also where its summary cannot be written.
void finish_failed(RunReport& report, const Plan& plan, const Trainer* trainer, const RunEnd& end,
                   double before_training) {
  try {
    report.finish(plan, trainer, trainer ? to_json(trainer->bad_samples()) : Json::array(), end, before_training);
  } catch (const std::exception& error) {
    spdlog::error("{}", explain(error).message);
  }
}

/// What the job would gain if one cost were nothing; after the run, whose memory is free again.
void show_ceilings(const Recipe& recipe, const Machine& machine, const std::filesystem::path& run_dir,
                   const MeasureOptions& measure, const OutputOptions& output) {
  CompareOptions options = measure.options();
  options.warmup_steps = recipe.bench.warmup_steps;
  if (!output.quiet) std::printf("\nmeasuring ceilings for at most %s\n", measure.budget.c_str());
  std::fflush(stdout);
  const auto ceilings =
      measure_ceilings(recipe, run_dir / "ceilings", options, measure.end(), machine, {.stop = &stop_signal()});
  write_file(run_dir / "ceilings.json",
             Json{{"schema_version", 1}, {"ceilings", ceilings_json(ceilings)}}.dump(2) + "\n");
  std::fputs(ceilings_text(ceilings).c_str(), stdout);
}

/// On rank 0: takes the run directory and reads what is there. The lock is held, and the log written, from here on.
Beginning begin(const Recipe& recipe, Plan& plan, std::optional<RunLock>& lock, std::optional<ArchiveReader>& state) {
  Beginning beginning{.folder = choose_run_directory(recipe), .checkpoint = std::nullopt};
  const auto& run_dir = beginning.folder.path;
  lock.emplace(run_dir);
  log_to_file(run_dir / "run.log");
  if (beginning.folder.continues) remove_drafts(run_dir / kCheckpoints);
  state = read_state(beginning.folder, run_dir / kCheckpoints, recipe);
  check_state(state, beginning.folder, recipe, plan);
  if (state) beginning.checkpoint = state->where();
  beginning.nothing_left = beginning.folder.continues && state && nothing_left(run_dir, *state, plan);
  return beginning;
}

/// Every rank opens the data by itself.
void require_same_data(const Plan& plan, JobMember& member) {
  const DataIdentity mine = plan.data.identity();
  const DataIdentity of_first = identity_from(member.decided("data", [&] { return to_json(mine); }));
  if (const auto difference = first_difference(of_first, mine))
    throw UserError(fmt::format("the data is not what rank 0 has: {}", *difference), ExitCode::data);
}

/// One rank of several says why the job ended: the one that failed, or the first that noticed that another is gone.
void say_end(const JobMember::End& end, const JobMember& member) {
  if (end.told)
    spdlog::debug("{}", end.message);
  else
    std::fprintf(stderr, "trainopt: rank %d: %s\n", static_cast<int>(member.position().rank), end.message.c_str());
}

/// Of the CPUs that this process may use, those on its GPU's side of the machine; empty if that is all or none of them.
std::vector<int> own_cpus_beside(at::Device device) {
  std::vector<int> allowed = allowed_cpus(), beside = cpus_beside(device_facts(device).pci_bus_id), both;
  std::sort(beside.begin(), beside.end());
  std::set_intersection(allowed.begin(), allowed.end(), beside.begin(), beside.end(), std::back_inserter(both));
  return both.size() == allowed.size() ? std::vector<int>() : both;
}

int train(const LoadedRecipe& loaded, const OutputOptions& output, const std::vector<Injection>& injections,
          const std::optional<MeasureOptions>& ceilings, JobMember& member, const Environment& environment) {
  const auto began = Clock::now();
  Machine machine = detect_machine();
  if (const auto cores = member.cores()) machine.cores = *cores;
  Plan plan = make_plan(loaded.recipe, machine, member.position());
  plan.notes.insert(plan.notes.begin(), loaded.notes.begin(), loaded.notes.end());
  inject(plan, injections);
  if (!member.alone() && !plan.device.is_cpu()) {
    plan.process.environment = nccl_environment(plan.parallel);
    plan.process.cpus = own_cpus_beside(plan.device);
    if (!plan.process.cpus.empty())
      plan.notes.push_back(
          fmt::format("keeps to the {} beside its GPU", counted(std::ssize(plan.process.cpus), "CPU")));
  }
  for (const auto& [name, value] : plan.process.environment)
    if (const auto set = environment.find(name); set != environment.end() && set->second != value)
      throw UserError(
          fmt::format("the environment contradicts what this run needs; unset it, or leave the recipe's key out where "
                      "there is one: {}={}, the run sets {}",
                      name, set->second, value));
  apply(plan.process);
  std::optional<RunLock> lock;
  std::optional<ArchiveReader> state;
  const Beginning beginning =
      beginning_from(member.decided("beginning", [&] { return to_json(begin(loaded.recipe, plan, lock, state)); }));
  require_same_data(plan, member);
  const RunFolder& folder = beginning.folder;
  const auto& run_dir = folder.path;
  Watchdog watchdog({.timeout_s = loaded.recipe.watchdog.timeout.seconds,
                     .grace_s = loaded.recipe.checkpoint.grace_period.seconds,
                     .run_dir = run_dir,
                     .rank = member.position().rank,
                     .stop_signal = &stop_signal()});
  if (!member.is_first()) {
    log_to_file(run_dir / fmt::format("run-rank{}.log", member.position().rank));
    watchdog.at("reading the checkpoint", 0);
    if (beginning.checkpoint) state = read_checkpoint(*beginning.checkpoint);
  }
  if (beginning.nothing_left) {
    if (member.is_first())
      std::printf("nothing is left to do: the run in %s was done after %s\n", run_dir.c_str(),
                  counted(*plan.steps, "step").c_str());
    return 0;
  }
  if (member.is_first()) {
    if (!output.quiet) std::printf("%s\n", plan_text(plan).c_str());
    std::fflush(stdout);
    if (output.quiet)  // the plan's text says it too
      for (const auto& entry : plan.switches)
        if (!entry.outcome.has_effect) spdlog::warn("{} has no effect here: {}", entry.name, entry.outcome.text);
  }
  watchdog.at("meeting the other ranks", 0);
  if (!member.alone() && !plan.device.is_cpu()) set_nccl_trace_folder(run_dir);
  member.open_communicator(plan.device, plan.parallel.nccl);

  const auto checkpoints = run_dir / kCheckpoints;
  std::optional<RecordsSoFar> so_far;
  if (folder.continues) so_far = state ? RecordsSoFar::of(*state) : RecordsSoFar{};
  CheckpointWriter writer(checkpoint_options(folder, checkpoints, loaded.recipe, state, member));
  Relay relay(watchdog, member);
  const auto take_run_directory = [&] {
    if (!member.is_first()) return;
    if (so_far)
      if (const auto newer = set_aside_newer(checkpoints, so_far->step); !newer.empty())
        spdlog::info("checkpoints newer than the one to go on from are kept as abandoned-step-…: steps {}",
                     fmt::join(newer, ", "));
    remove_file(run_dir / "summary.json");  // of the process before: this one's is still to come
    write_beginning(run_dir, loaded.recipe, plan);
    relay.report.emplace(plan, run_dir, so_far, output.quiet, !output.no_color);
  };
  std::optional<Trainer> trainer;
  double before_training = 0;
  Json bad_samples;
  try {
    if (!folder.continues) take_run_directory();
    trainer.emplace(
        plan, run_dir, relay, stop_signal(),
        Persistence{.checkpoints = &writer, .resume = state ? &*state : nullptr, .forks = state && !folder.continues},
        member.communicator());
    state.reset();  // its tensors are as large as the trainer's
    if (folder.continues) take_run_directory();
    before_training = seconds_since(began);
    trainer->run();
    const NamedTensors weights = trainer->weights();
    if (const auto bad = first_not_finite(weights))
      throw UserError(fmt::format("the weights are not finite after the last step, so they were not written: {}", *bad),
                      ExitCode::diverged);
    if (member.is_first()) save_tensors(run_dir / "weights.safetensors", weights, {{"format", "pt"}});
    bad_samples = member.collected("bad_samples", to_json(trainer->bad_samples()));
  } catch (const std::exception& error) {  // named recovery: the summary says how the run ended; main() says the rest
    const auto end = member.end_of(error);
    if (relay.report) finish_failed(*relay.report, plan, trainer ? &*trainer : nullptr, failure(end), before_training);
    if (!member.alone()) {
      watchdog.finished();
      say_end(end, member);
      member.leave_alone(static_cast<int>(end.code));  // the trainer's exchanges hang on ranks that will not answer
    }
    throw;
  }
  const RunEnd end = end_of(trainer->outcome(), plan, writer.saved_step());
  if (relay.report) relay.report->finish(plan, &*trainer, bad_samples, end, before_training);
  watchdog.finished();
  member.leave_together();
  trainer.reset();
  plan.data.device_dataset.reset();  // a data set on the device
  if (!ceilings || end.status != "done") return end.exit_code;
  show_ceilings(loaded.recipe, machine, run_dir, *ceilings, output);
  return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

}  // namespace

Command add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Train");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto run_dir = std::make_shared<std::string>();
  command->add_option("--run-dir", *run_dir, "Exactly this run directory");
  const auto ceilings = std::make_shared<bool>(false);
  const auto faults = std::make_shared<std::vector<std::string>>();
  command
      ->add_option("--inject", *faults,
                   "Break something on purpose, to see what the run does: nan@12, gradient@12, oom@3, slow@4, hang@5, "
                   "kill@7; + each time it is tried")
      ->type_name("FAULT@STEP[+]")
      ->allow_extra_args(false)
      ->take_all();
  const auto measure = std::make_shared<MeasureOptions>();
  command->add_flag("--ceilings", *ceilings,
                    "Then measure what the job would gain if loading, the optimizer or logging cost nothing");
  for (CLI::Option* option : measure->add_to(*command, "3m")) option->needs("--ceilings");
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    const Launch launch = read_launch(context.environment);
    handle_signals();
    if (!run_dir->empty())
      recipes->words.push_back(
          fmt::format("run_dir={}", Json(*run_dir).dump()));  // quoted: any path is one YAML scalar
    if (*ceilings) measure->options(), measure->budget_s();   // what is wrong is said before the training
    std::vector<Injection> injections;
    for (const auto& text : *faults) injections.push_back(parse_injection(text));
    if (*ceilings && launch.position.ranks > 1)
      throw UserError("--ceilings measures one rank; leave it out with several");
    const LoadedRecipe loaded = recipes->load(*command, launch.position.ranks);
    std::optional<JobMember> joined;
    try {
      joined.emplace(launch, loaded.recipe);
    } catch (const PeerFailed& error) {  // named recovery: another rank says it
      spdlog::debug("{}", error.what());
      return static_cast<int>(error.code());
    } catch (const UserError& error) {
      throw UserError(fmt::format("rank {}: {}", launch.position.rank, error.what()), error.code());
    }
    JobMember& member = *joined;
    if (member.alone())
      return train(loaded, context.output, injections, *ceilings ? std::optional(*measure) : std::nullopt, member,
                   context.environment);
    try {
      return train(loaded, context.output, injections, std::nullopt, member, context.environment);
    } catch (const std::exception& error) {  // named recovery: a job ends together
      const auto end = member.end_of(error);
      say_end(end, member);
      member.leave_alone(static_cast<int>(end.code));
    }
  };
}

}  // namespace trainopt
