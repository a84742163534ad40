// A training run that saves after every step, to be killed by kill_saves.py. Loading libtorch takes longer than the
// training, so this process loads it once and forks for each run; it computes nothing itself. It reads one command per
// line and writes one answer per line:
//   run FOLDER STEPS [quietly]   Trains in FOLDER up to STEPS as `trainopt run` does, from the newest
//                                checkpoint; with `quietly` it saves only at the end. Answers: "process N", "resumed S"
//                                (0: from scratch), "saving S" before each save, "saved S" once it is on the disk, and
//                                finally "ended N": the exit code, or 128 + signal. The process id is not reused before
//                                the next command.
//   check FOLDER                 Answers: "whole S..." for all checkpoints, oldest first, "latest S", and "drafts N"
//                                left by killed runs; or "broken: why".
#include "base/files/files.h"
#include "checkpoint/run_lock.h"
#include "checkpoint/store.h"
#include "support/plans.h"
#include "train/checkpoint/checkpoint_files.h"

#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>

#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <sstream>

namespace trainopt::test {
namespace {

/// Writes the line with a single write(), so that it is never torn when the process is killed.
void say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(3);
}

class Reporter : public RunListener {
 public:
  const CheckpointWriter* writer = nullptr;

  void step_done(const StepRecord&) override {}
  void evaluated(int64_t, const EvaluationResult&) override {}
  void at(const char* stage, int64_t step) override {
    if (const auto saved = writer->saved_step(); saved != reported_) say(fmt::format("saved {}", *(reported_ = saved)));
    if (std::string_view(stage) == "saving a checkpoint") say(fmt::format("saving {}", step));
  }

 private:
  std::optional<int64_t> reported_;
};

/// A plan with a few megabytes of state, so that a save takes a measurable time.
Plan plan_of(int64_t steps) {
  Plan plan = small_plan(steps);
  plan.optimizer_config = SgdConfig{.lr = 0.001, .momentum = 0.9};
  plan.model.config = {.name = ModelKind::mlp, .hidden = {512, 512}, .dropout = 0.25};
  return plan;
}

void train(const std::filesystem::path& folder, int64_t steps, bool quietly) {
  at::set_num_threads(1);
  const RunLock lock(folder);
  const auto checkpoints = folder / "checkpoints";
  remove_drafts(checkpoints);
  const auto state = read_newest_checkpoint(checkpoints, [](const std::string& why) { throw std::runtime_error(why); });
  say(fmt::format("resumed {}", state ? state->integer("step") : 0));
  CheckpointWriter writer({.root = checkpoints, .every_n_steps = quietly ? std::nullopt : std::optional<int64_t>(1)});
  Reporter reporter;
  reporter.writer = &writer;
  Trainer trainer(plan_of(steps), {}, reporter, never_stopped(),
                  {.checkpoints = &writer, .resume = state ? &*state : nullptr});
  trainer.run();
  if (writer.saved_step()) say(fmt::format("saved {}", *writer.saved_step()));
}

void check(const std::filesystem::path& folder) {
  const auto root = folder / "checkpoints";
  std::string steps;
  for (const auto& checkpoint : list_checkpoints(root))
    steps = fmt::format(" {}{}", verify_checkpoint(checkpoint.folder).step, steps);
  const int64_t latest = verify_checkpoint(root / kLatest).step;
  int64_t drafts = 0;
  for (const auto& name : names_in_folder(root, ExitCode::storage)) drafts += name.starts_with('.');
  say("whole" + steps);
  say(fmt::format("latest {}", latest));
  say(fmt::format("drafts {}", drafts));
}

template <class Work>
int guarded(const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("broken: {}", error.what()));
    return 1;
  }
}

int serve() {
  pid_t child = 0;
  for (std::string line; std::getline(std::cin, line);) {
    if (child > 0) ::waitpid(std::exchange(child, 0), nullptr, 0);  // until here its process id could not be reused
    std::istringstream words(line);
    std::string command, folder, quietly;
    int64_t steps = 0;
    words >> command >> folder >> steps >> quietly;
    if (command == "check") {
      guarded([&] { check(folder); });
      continue;
    }
    child = ::fork();
    if (child == 0) {
      say(fmt::format("process {}", ::getpid()));
      ::_exit(guarded([&] { train(folder, steps, !quietly.empty()); }));
    }
    siginfo_t end{};
    ::waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT);
    say(fmt::format("ended {}", end.si_code == CLD_EXITED ? end.si_status : 128 + end.si_status));
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace trainopt::test

int main() {
  spdlog::set_level(spdlog::level::warn);  // stdout carries only answers
  return trainopt::test::serve();
}
