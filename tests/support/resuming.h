// Trains in two parts, with a stop in between and the state carried over by a checkpoint on the disk.
#pragma once

#include "device/tensor.h"
#include "support/plans.h"
#include "support/temporary_folder.h"
#include "train/checkpoint/checkpoint_files.h"

namespace trainopt::test {

/// Requests a stop after a step.
class StopAfter : public Rows {
 public:
  explicit StopAfter(int64_t step) : step_(step) {}
  void step_done(const StepRecord& row) override {
    Rows::step_done(row);
    if (row.step() == step_) stop = 15;
  }
  std::atomic<int> stop{0};

 private:
  int64_t step_;
};

struct PartialRun {
  std::vector<double> losses;
  std::vector<int64_t> steps;
  NamedTensors state;  ///< copies of every component's tensors
  RunOutcome outcome;
};

/// Trains from `resume`, if given, until `stop_after`, if given; saves at the end if `writer` is given.
inline PartialRun train_part(const Plan& plan, std::optional<int64_t> stop_after = std::nullopt,
                             CheckpointWriter* writer = nullptr, const ArchiveReader* resume = nullptr) {
  StopAfter rows(stop_after.value_or(-1));
  Trainer trainer(plan, {}, rows, rows.stop, {.checkpoints = writer, .resume = resume});
  trainer.run();
  PartialRun left{.losses = rows.losses(), .steps = {}, .state = {}, .outcome = trainer.outcome()};
  for (const StepRecord& row : rows.rows) left.steps.push_back(row.step());
  ArchiveWriter archive;
  trainer.save(archive);
  for (const auto& [name, tensor] : archive.tensors()) left.state.emplace_back(name, tensor.detach().clone());
  return left;
}

/// The name of the first tensor whose bits differ; empty if none does.
inline std::string first_difference(const NamedTensors& a, const NamedTensors& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i].first != b[i].first || !a[i].second.equal(b[i].second)) return a[i].first;
  return a.size() == b.size() ? "" : "a different number of tensors";
}

/// Trains `first` until step `k`, saves, and resumes with `second`. Returns the losses of both parts and the final
/// state.
inline PartialRun train_in_two(const Plan& first, const Plan& second, int64_t k, bool background = true) {
  const TemporaryFolder folder;
  PartialRun left;
  {
    CheckpointWriter writer({.root = folder / "checkpoints", .background = background});
    left = train_part(first, k, &writer);
  }
  const auto state =
      read_newest_checkpoint(folder / "checkpoints", [](const std::string& why) { throw std::runtime_error(why); });
  PartialRun rest = train_part(second, std::nullopt, nullptr, &state.value());
  rest.losses.insert(rest.losses.begin(), left.losses.begin(), left.losses.end());
  rest.steps.insert(rest.steps.begin(), left.steps.begin(), left.steps.end());
  return rest;
}

}  // namespace trainopt::test
