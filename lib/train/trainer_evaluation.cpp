#include "device/backend_settings.h"
#include "train/trainer.h"

// Evaluations between the steps, of the weights and of their average.
namespace trainopt {

bool Trainer::evaluation_due() const {
  return plan_.evaluation && plan_.evaluation->every_n_steps && outcome_.steps % *plan_.evaluation->every_n_steps == 0;
}

void Trainer::evaluate() {
  const BackendGuard settings(plan_.backend);
  deliver(async_reader_->flush());
  const auto began = Clock::now();
  ranks_.broadcast_buffers(*model_, groups_->replicas());
  const auto stopped = [&] {
    at("evaluating");
    agree();
    return ranks_.stopped();
  };
  const auto evaluated = [&] {
    return evaluate_within_memory([&] {
      return trainopt::evaluate(*model_, *task_, *precision_, plan_, *communicator_, bad_samples_.evaluation, stopped);
    });
  };
  auto result = evaluated();
  if (result)
    with_average([&] {
      ranks_.broadcast_buffers(*model_, groups_->replicas());  // each rank has averages of its own statistics
      if (const auto average = evaluated())
        result->average = {average->loss, average->top1_pct, average->top5_pct, average->perplexity};
      else
        result.reset();  // stopped
    });
  if (result) {
    outcome_.evaluation = result;
    evaluated_at_ = outcome_.steps;
    note_target(wall_s_before_ + milliseconds_between(started_, began) / 1e3 - outcome_.evaluation_s);
    listener_.evaluated(outcome_.steps, *result);
  }
  outcome_.evaluation_s += seconds_since(began);
  ranks_.drop_traffic();
  boundary_ = Clock::now();
}

bool Trainer::with_average(const std::function<void()>& work) {
  if (!average_->begin_use()) return false;
  const auto tell = [this] {
    parameters_->updated();
    optimizer_->parameters_changed();
  };
  tell();
  work();
  average_->end_use();
  tell();
  return true;
}

void Trainer::note_target(double training_s) {
  if (!outcome_.target && reached(goal_of(plan_.train.target), *outcome_.evaluation))
    outcome_.target = TargetReached{outcome_.steps, outcome_.samples, training_s};
}

}  // namespace trainopt
