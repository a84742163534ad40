#include "recipe/program_of_plan.h"

#include "base/units.h"
#include "data/formats/table.h"
#include "model/catalogue.h"

#include <algorithm>

namespace trainopt {

ProgramOfPlan::ProgramOfPlan(const ModelConfig& model) : model_(model) {
  if (traits_of(model.name).from_file) program_ = program_facts(model);
}

ModelTask ProgramOfPlan::task() const {
  if (program_) return program_->task;
  return traits_of(model_.name).text ? ModelTask::language_model : ModelTask::classification;
}

ModelNeeds ProgramOfPlan::needs() const {
  if (!program_ && traits_of(model_.name).text) return {.context = model_.context, .vocabulary = model_.vocabulary};
  if (!program_) return {.num_classes = classes_of(model_)};
  ModelNeeds needs;
  if (program_->input.is_text()) {
    needs.context = program_->input.tokens;
    constexpr int64_t kMostTokens = 1 << 24;  // a program that shows no number of its own may know any
    needs.vocabulary = program_->classes > 0 ? program_->classes : program_->embedded_tokens.value_or(kMostTokens);
  } else if (program_->classes > 0) {
    needs.num_classes = program_->classes;
  }
  return needs;
}

void ProgramOfPlan::choose_classes(const DataSpec& data) {
  // What a program returns beside its loss are no logits of the data's classes if they are fewer: an embedding,
  // perhaps.
  if (task() == ModelTask::loss && data.images() != nullptr && data.images()->num_classes() > program_->classes)
    program_->classes = 0;
  if (!model_.num_classes || !model_.num_classes->is_auto()) return;
  const ImageDataset* images = data.images();
  takes_datas_classes_ = images != nullptr;
  model_.num_classes = images != nullptr ? images->num_classes() : classes_of(model_);
  if (program_) program_ = program_facts(model_);
}

void ProgramOfPlan::require_fit(const DataSpec& data, const Recipe& recipe) const {
  require_classes(data, "the data");
  require_padding(recipe.data);
  require_own_loss_alone(recipe);
  require_metric(recipe);
}

void ProgramOfPlan::require_classes(const DataSpec& data, const char* whose) const {
  const ImageDataset* images = data.images();
  // A program that returns its loss alone may know any number.
  if (images == nullptr || (program_ && program_->classes == 0)) return;
  const int64_t known = program_ ? program_->classes : classes_of(model_);
  if (images->num_classes() <= known) return;
  if (program_ && !model_.replace_head)
    throw UserError(
        fmt::format("{} predicts {}, and {} has {}; export it with as many, or give it a new last layer with "
                    "model.replace_head: true and model.num_classes: auto",
                    path(), counted(known, "class", "es"), whose, images->num_classes()));
  if (takes_datas_classes_)  // auto, which the training data decided
    throw UserError(
        fmt::format("the training data has {}, and {} has {}; set model.num_classes to at least as many, or "
                    "look at the labels",
                    counted(known, "class", "es"), whose, images->num_classes()));
  throw UserError(fmt::format("model.num_classes is {}{}, and {} has {}; set it to auto, or to at least as many", known,
                              model_.num_classes ? "" : ", the default", whose,
                              counted(images->num_classes(), "class", "es")));
}

void ProgramOfPlan::require_batches(const DataSpec& data, const char* key) const {
  if (!program_) return;
  const auto& [least, largest] = std::tie(program_->least_batch, program_->largest_batch);
  int64_t rest = data.drop_last || data.last_batch == LastBatch::drop ? 0 : data.samples() % data.batch_size;
  if (data.last_batch == LastBatch::merge && data.ranks == 1) rest = data.schedule().largest_items();
  for (const int64_t size : {data.batch_size, rest})
    if (size > 0 && (size < least.value_or(1) || size > largest.value_or(size)))
      throw UserError(fmt::format("{}: {} was exported for batches of {} to {} samples, and one has {}{}", key, path(),
                                  std::max<int64_t>(1, least.value_or(1)),
                                  largest ? std::to_string(*largest) : "any number of", size,
                                  size != data.batch_size ? "; the last of an epoch is another" : ""));
}

/// A program that was exported for texts of one length cannot read shorter ones.
void ProgramOfPlan::require_padding(const DataConfig& data) const {
  if (!program_ || !format_of(data.dataset).pads || data.padding == Padding::max || program_->free_tokens) return;
  throw UserError(
      fmt::format("{} takes texts of {} tokens and no shorter ones; set data.padding: max, or export it with a free "
                  "second dimension",
                  path(), program_->input.tokens));
}

void ProgramOfPlan::require_own_loss_alone(const Recipe& recipe) const {
  if (task() == ModelTask::loss && recipe.train.label_smoothing > 0)
    throw UserError(fmt::format("train.label_smoothing: {} computes its own loss; remove this key", path()));
}

/// The recipe alone says what built-in networks measure, so validate() checks these.
void ProgramOfPlan::require_metric(const Recipe& recipe) const {
  const auto goal = goal_of(recipe.train.target);
  if (!program_ || !goal || goal->metric == "loss") return;
  const bool has_own_loss = task() == ModelTask::loss;
  const bool counts = task() == ModelTask::classification || (has_own_loss && program_->classes > 0);
  const std::string other = counts ? "top1_pct" : has_own_loss ? "" : "perplexity";
  if (goal->metric == other) return;
  throw UserError(fmt::format(
      "train.target.{}: an evaluation of {} does not measure this; use loss{}{}", goal->metric, path(),
      other.empty() ? "" : " or " + other,
      has_own_loss && !counts && !program_->input.is_text() ? ", or export it so that it returns (loss, logits)" : ""));
}

void ProgramOfPlan::require_evaluation() const {
  if (!program_) return;
  const std::string why_not = why_not_evaluated(model_);
  if (!why_not.empty())
    throw UserError(fmt::format("{} cannot be evaluated: {}; set model.evaluation_path to the same model exported "
                                "after eval(), or evaluation.at_end: false",
                                path(), why_not),
                    ExitCode::checkpoint);
}

void ProgramOfPlan::fill_task(Plan& plan) const {
  if (task() == ModelTask::language_model)
    plan.task = Slot<Task>("task", "language model: cross entropy of the next token",
                           [](const BuildContext&) { return std::make_unique<LanguageModelTask>(); });
  if (task() == ModelTask::loss)
    plan.task = Slot<Task>("task", "the loss that the program computes",
                           [has_logits = program_->classes > 0](const BuildContext&) {
                             return std::make_unique<ProgramLossTask>(has_logits);
                           });
}

void ProgramOfPlan::note_classes(Plan& plan) const {
  const ImageDataset* images = plan.data.images();
  if (images == nullptr || task() != ModelTask::classification) return;
  if (takes_datas_classes_)
    plan.notes.push_back(
        fmt::format("model.num_classes: auto is {}, the number of classes in the data", images->num_classes()));
  const int64_t known = program_ ? program_->classes : classes_of(model_);
  if (images->num_classes() < known && !program_ && !model_.num_classes)
    plan.notes.push_back(fmt::format("model.num_classes is {}, the default, and the data has {}; auto takes as many",
                                     known, counted(images->num_classes(), "class", "es")));
}

void ProgramOfPlan::note(Plan& plan) const {
  note_classes(plan);
  if (!program_) return;
  std::vector<std::string>& notes = plan.notes;
  if (task() == ModelTask::loss)
    notes.push_back(program_->classes > 0 ? "the program computes its own loss, and returns logits of classes to count"
                                          : "the program computes its own loss; evaluation reports nothing else");
  if (const auto uncounted = program_notes(model_).uncounted; !uncounted.empty())
    notes.push_back(fmt::format("the operations per sample leave out {}, such as {}",
                                counted(std::ssize(uncounted), "operation"), uncounted.front()));
  if (plan.evaluation)
    notes.push_back(model_.evaluation_path
                        ? fmt::format("evaluation runs the program in {}", *model_.evaluation_path)
                        : "evaluation runs the training program, with dropout and the like turned off");
  if (!plan.model.layers.found.empty())
    notes.push_back(fmt::format("switches reach {} of the program", plan.model.layers.found));
}

}  // namespace trainopt
