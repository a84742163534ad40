// The sink `tensorboard`: an event file in the run directory, so that `tensorboard --logdir runs` shows and compares
// run directories.
#pragma once

#include "metrics/line_file.h"
#include "metrics/sink.h"
#include "metrics/tensorboard_format.h"

#include <filesystem>
#include <string>
#include <vector>

namespace trainopt {

/// The event files in `run_dir`, oldest first, which is the order in which TensorBoard reads them.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& run_dir);

/// The recipe's values as hyperparameters, `section.key` each; null, lists and maps as JSON text. Sections that do not
/// influence the training's result or speed, and the folders, are left out.
Json hyperparameters(const Json& recipe);

class TensorboardSink : public Sink {
 public:
  /// Opens a new file. `resumed_after`: the step of the checkpoint that the run continues from; 0 for a new run.
  /// TensorBoard then forgets later steps, and the end of the earlier process is removed from its file, because
  /// TensorBoard keeps only a run's first end. Throws UserError(storage).
  TensorboardSink(const std::filesystem::path& run_dir, int64_t resumed_after);

  /// All metrics that have a value, each with the tag `section/name`.
  void write(const StepRecord& row) override;
  void flush() override { file_.flush(); }
  int64_t dropped_lines() const override { return file_.dropped_lines(); }

  /// Hyperparameters, and the recipe as text.
  void run_began(const Json& recipe, const std::string& recipe_yaml) override;
  /// The numbers of `evaluation`, with tags `eval/…`.
  void evaluated(int64_t step, const Json& evaluation) override;
  /// Tags `at_end/…`, which are the first columns of TensorBoard's HPARAMS page, and the receipts as text. A stopped
  /// run gets no end, because it may be resumed.
  void run_ended(const Json& summary) override;

 private:
  void add(const std::string& event) { file_.write(framed(event)); }

  LineFile file_;
  int64_t resumed_after_;
};

}  // namespace trainopt
