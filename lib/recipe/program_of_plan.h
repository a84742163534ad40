// The model of a plan and what it asks of the recipe and the data: a program of the user's own says so itself.
#pragma once

#include "data/dataset.h"
#include "model/imported/imported.h"
#include "recipe/recipe.h"
#include "train/plan.h"

#include <optional>

namespace trainopt {

class ProgramOfPlan {
 public:
  /// Reads the program if the model is one. Throws UserError(checkpoint).
  explicit ProgramOfPlan(const ModelConfig& model);

  const ModelConfig& model() const { return model_; }
  ModelTask task() const;
  /// What the data must know of the model.
  ModelNeeds needs() const;
  /// Resolves model.num_classes: auto.
  void choose_classes(const DataSpec& data);

  /// Each of these throws UserError.
  void require_fit(const DataSpec& data, const Recipe& recipe) const;
  /// `whose`: "the evaluation data".
  void require_classes(const DataSpec& data, const char* whose) const;
  /// A program may have been exported for some sizes of batches only. `key`: of the batch size.
  void require_batches(const DataSpec& data, const char* key) const;
  /// The fewest samples of a batch that the program was exported for.
  int64_t least_batch() const { return program_ ? program_->least_batch.value_or(1) : 1; }
  void require_evaluation() const;

  void fill_task(Plan& plan) const;
  /// Notes what a reader of the plan should know of the classes and of a program.
  void note(Plan& plan) const;

 private:
  void note_classes(Plan& plan) const;
  void require_padding(const DataConfig& data) const;
  void require_own_loss_alone(const Recipe& recipe) const;
  void require_metric(const Recipe& recipe) const;
  std::string path() const { return model_.path.value_or(""); }

  ModelConfig model_;
  std::optional<ProgramFacts> program_;  ///< null: a built-in network
  bool takes_datas_classes_ = false;     ///< num_classes was auto
};

}  // namespace trainopt
