#include "run/session.h"

#include "base/files/files.h"
#include "base/log.h"
#include "base/print.h"
#include "base/units.h"
#include "comm/nccl_environment.h"
#include "device/device.h"
#include "device/gpu_error.h"
#include "device/memory.h"
#include "device/process.h"
#include "recipe/plan_text.h"
#include "run/directory.h"
#include "run/job_member.h"
#include "run/report.h"
#include "run/run_plan.h"
#include "run/signals.h"
#include "run/start.h"
#include "run/version.h"
#include "run/watchdog.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/observe/memory_snapshot.h"
#include "train/trainer.h"

#include <torch/version.h>

#include <unistd.h>

#include <cstdio>
#include <exception>

namespace trainopt {
namespace {

void print_plan(const Plan& plan, const OutputOptions& output) {
  if (!output.quiet) print_out("{}\n", plan_text(plan));
  std::fflush(stdout);
  if (!output.quiet) return;  // the plan's text reports them
  for (const auto& entry : plan.switches) {
    if (!entry.outcome.has_effect) log_warning("{} has no effect here: {}", entry.name, entry.outcome.text);
    if (!entry.doubt.empty()) log_warning("{} is not expected to pay here: {}", entry.name, entry.doubt);
  }
}

/// After a GPU fault, destructors that free page-locked memory or wait for the GPU would end the process in their own
/// way.
[[noreturn]] void exit_without_destructors(const Explained& end) {
  print_error(end.message);
  flush_log();
  std::fflush(stdout);
  ::_exit(static_cast<int>(end.code));
}

class RunSession {
 public:
  RunSession(const LoadedRecipe& loaded, const SessionOptions& options, const Environment& environment,
             JobMember& member)
      : recipe_(loaded.recipe),
        options_(options),
        member_(member),
        machine_(machine_of(member, environment)),
        watchdog_({.timeout_s = recipe_.watchdog.timeout.seconds,
                   .grace_s = recipe_.checkpoint.grace_period.seconds,
                   .run_dir = {},
                   .rank = member.position().rank,
                   .stop_signal = &stop_signal()}),
        plan_(plan_run(loaded, machine_, options.injections, member, environment)) {}

  int run() {
    apply(plan_.process);
    open_device(plan_.device);
    claim();
    if (start().already_finished) return report_already_finished();
    if (member_.is_first()) print_plan(plan_, options_.output);
    meet_ranks();
    prepare_training();
    try {
      train();
    } catch (const std::exception& error) {  // named recovery: the summary records the failure; main() reports it
      report_failure(error);
      throw;
    }
    return report();
  }

 private:
  const RunStart& start() const { return claimed_->start; }
  const std::filesystem::path& run_dir() const { return start().folder.path; }

  void claim() {
    watchdog_.starting("reading the checkpoint");
    claimed_.emplace(claim_run(recipe_, plan_, member_));
    require_same_data(plan_, member_);
    watchdog_.report_to(run_dir());
    if (member_.is_first()) return void(folder_watch_.emplace(*claimed_->folder, run_dir()));
    log_to_file(run_dir() / fmt::format("run-rank{}.log", member_.position().rank));
    read_state(*claimed_);
  }

  int report_already_finished() const {
    if (member_.is_first())
      print_out("nothing is left to do: the run in {} finished after {}\n", run_dir().string(),
                counted(claimed_->state->integer("step"), "step"));
    return 0;
  }

  void meet_ranks() {
    watchdog_.at("meeting the other ranks", 0);
    if (!member_.is_single() && !plan_.device.is_cpu()) set_nccl_trace_folder(run_dir());
    member_.open_communicator(plan_.device);
  }

  void prepare_training() {
    if (start().folder.continues) so_far_ = claimed_->is_own() ? RecordsSoFar::of(*claimed_->state) : RecordsSoFar{};
    if (member_.position().one_machine() && !plan_.device.is_cpu())  // counters of other machines cannot be read here
      energy_gpus_ = member_.gathered_on_rank_0("GPUs", Json::array({device_facts(plan_.device).pci_bus_id}))
                         .get<std::vector<std::string>>();
    writer_.emplace(checkpoint_options());
    report_.emplace(plan_, run_dir(), options_.output, [this](const char* stage, int64_t steps) {
      watchdog_.at(stage, steps);
      member_.at(stage, steps);
      if (folder_watch_) folder_watch_->look();
    });
    record_memory();
  }

  void record_memory() {
    if (plan_.memory_snapshot && plan_.device.is_cuda()) record_gpu_memory_history(kSnapshotEvents);
    // On a GPU the recorder listens where libtorch's profiler does, and the two would end each other.
    if (plan_.device.is_cuda() && plan_.records_traces) return;
    memory_.emplace(plan_.device, plan_.memory_snapshot ? kSnapshotEvents : 0);
  }

  /// The training does not depend on its snapshot.
  void save_memory_snapshot() {
    if (!plan_.memory_snapshot) return;
    const auto file = run_dir() / "memory" / fmt::format("rank{}.pickle", member_.position().rank);
    try {
      write_memory_snapshot(file, plan_.device, memory_ ? &*memory_ : nullptr);
      log_info("wrote {}", file.string());
    } catch (const std::exception& error) {  // named recovery: whatever it is, it must not hide how the run ended
      log_warning("{}", explain(error).message);
    }
  }

  CheckpointWriterOptions checkpoint_options() const {
    CheckpointWriterOptions options;
    options.root = start().checkpoints();
    options.every_n_steps = recipe_.checkpoint.every_n_steps;
    options.keep_last = recipe_.checkpoint.keep_last;
    options.background = recipe_.checkpoint.background;
    if (so_far_ && claimed_->state) options.keep.push_back(so_far_->step);
    options.recipe = recipe_yaml(recipe_);
    options.versions = {{"trainopt", kBuild.version}, {"libtorch", TORCH_VERSION}};
    options.before_commit = [run_dir = run_dir()] { RunReport::sync_records(run_dir); };
    options.requested = &save_request();
    options.position = member_.position();
    if (!member_.is_single()) {
      options.put = member_.put();
      options.get = member_.get();
    }
    return options;
  }

  /// An existing run directory is not changed until the trainer has loaded the state.
  void train() {
    handle_signals();  // from here on there is something to save
    const bool continues = start().folder.continues;
    auto& state = claimed_->state;
    if (!continues) open_run_directory();
    trainer_.emplace(
        plan_, run_dir(), *report_, stop_signal(),
        Persistence{.checkpoints = &*writer_, .resume = state ? &*state : nullptr, .forks = !claimed_->is_own()},
        member_.communicator(), memory_ ? &*memory_ : nullptr);
    state.reset();  // frees tensors as large as the trainer's
    if (continues) open_run_directory();
    before_training_s_ = seconds_since(began_);
    trainer_->run();
    save_memory_snapshot();
    require_updates(trainer_->outcome(), plan_);
    save_weights();
    bad_samples_ = member_.gathered_on_rank_0("bad_samples", to_json(trainer_->bad_samples()));
  }

  void open_run_directory() {
    if (!member_.is_first()) return;
    RunReport::refuse_links(run_dir());
    prepare_run_directory(start(), so_far_ ? std::optional(so_far_->step) : std::nullopt, recipe_, plan_);
    report_->open(so_far_, recipe_, energy_gpus_);
  }

  void save_weights() {
    trainer_->during("writing the weights", [this] {
      write_weights(*trainer_, run_dir() / "weights.safetensors");
      const bool averaged = trainer_->parts().with_average(
          [this] { write_weights(*trainer_, run_dir() / "weights-average.safetensors"); });
      if (!averaged && !std::holds_alternative<NoAverageConfig>(plan_.average_config) && member_.is_first())
        log_warning("weights-average.safetensors is not written, because no step was averaged");
    });
  }

  /// Returns only if there is a single rank and its GPU, if any, still works.
  void report_failure(const std::exception& error) {
    const auto end = member_.end_of(error);
    if (!is_gpu_lost(error)) save_memory_snapshot();
    report_->finish_failed(trainer_ ? &*trainer_ : nullptr, end, before_training_s_);
    if (member_.is_single()) {
      if (is_gpu_lost(error)) {
        finish_earlier_checkpoint();
        exit_without_destructors(end);
      }
      return;
    }
    watchdog_.finished();
    report_end(end, member_);
    member_.exit_without_other_ranks(
        static_cast<int>(end.code));  // the trainer's exchanges wait for ranks that will not answer
  }

  /// One that is being written is read from host memory, so it is complete in spite of a GPU fault.
  void finish_earlier_checkpoint() {
    try {
      if (writer_) writer_->finish();
    } catch (const std::exception& error) {  // named recovery: the run's own failure is still reported
      log_error("{}", explain(error).message);
    }
  }

  /// The run's end, the same on every rank.
  RunEnd run_end() {
    RunEnd end = end_of_run(trainer_->outcome(), plan_, writer_->saved_step(), member_.restarts().done);
    const Json corrected = member_.from_rank_0("run directory", [&] {
      const auto other = folder_watch_->corrected(end);
      return other ? Json{other->reason, other->exit_code} : Json();
    });
    if (!corrected.is_null()) end = {end.status, corrected.at(0), static_cast<int>(code_of_peer(corrected.at(1)))};
    return end;
  }

  int report() {
    const RunEnd end = run_end();
    report_->finish(&*trainer_, bad_samples_, end, before_training_s_);
    watchdog_.finished();
    member_.finish_with_other_ranks();
    if (!options_.then || end.status != "done" || end.exit_code != 0) return end.exit_code;
    trainer_.reset();
    memory_.reset();
    if (plan_.memory_snapshot && plan_.device.is_cuda()) end_gpu_memory_history();
    plan_.data.device_dataset.reset();  // frees a data set stored on the device
    return options_.then({member_, machine_, run_dir()});
  }

  const Clock::time_point began_ = Clock::now();
  const Recipe& recipe_;
  const SessionOptions& options_;
  JobMember& member_;
  const Machine machine_;
  Watchdog watchdog_;  ///< created before the plan, whose making opens the data
  Plan plan_;
  std::optional<ClaimedRun> claimed_;
  std::optional<FolderWatch> folder_watch_;  ///< set on rank 0 only
  std::optional<RecordsSoFar> so_far_;       ///< set if the run continues in an existing run directory
  std::vector<std::string> energy_gpus_;     ///< the GPUs of all ranks, if all are on this machine; only on rank 0
  std::optional<CheckpointWriter> writer_;
  std::optional<RunReport> report_;
  std::optional<MemoryRecorder> memory_;  ///< outlives the trainer, whose tensors it follows
  std::optional<Trainer> trainer_;
  double before_training_s_ = 0;
  Json bad_samples_;  ///< bad samples of all ranks
};

}  // namespace

int run_session(const Launch& launch, const LoadedRecipe& loaded, const SessionOptions& options,
                const Environment& environment) {
  std::optional<JobMember> member;
  try {
    member.emplace(launch, loaded.recipe);
  } catch (const PeerFailed& error) {  // named recovery: another rank reports it
    log_debug("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const UserError& error) {
    throw UserError(fmt::format("rank {}: {}", launch.position.rank, error.what()), error.code());
  }
  if (member->is_single()) return RunSession(loaded, options, environment, *member).run();
  try {
    return RunSession(loaded, options, environment, *member).run();
  } catch (const std::exception& error) {  // named recovery: all ranks of a job end together
    const auto end = member->end_of(error);
    report_end(end, *member);
    member->exit_without_other_ranks(static_cast<int>(end.code));
  }
}

}  // namespace trainopt
