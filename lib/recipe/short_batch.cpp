#include "recipe/short_batch.h"

#include "base/units.h"

namespace trainopt {
namespace {

/// The fewest samples over which a batch-norm computes its statistics in this schedule's last micro-batch.
int64_t samples_in_last(const DataSpec& data, bool together) {
  BatchSchedule::Shape shape = data.schedule().shape();
  shape.rank = shape.ranks - 1;  // no other rank has fewer
  const BatchSchedule schedule(shape);
  const int64_t step = schedule.steps_per_epoch() - 1, micro = schedule.micros_in_step(step) - 1;
  if (!together) return schedule.at(step, micro).items;
  return shape.short_batch() > 0 ? shape.short_batch() : shape.ranks * shape.batch_size;
}

std::string one_value(const Plan& plan) {
  const InputShape& input = plan.model.input;
  return fmt::format(
      "batch-norm needs more than one value of each channel, and a sample{} leaves one in a layer of the {}",
      input.is_text() ? "" : fmt::format(" of {} × {} pixels", input.height, input.width), plan.model.noun());
}

void refuse_every_batch(const Plan& plan) {
  const bool ranks = plan.data.ranks > 1;
  throw UserError(fmt::format("data.batch_size: {}; use at least 2{}{}", one_value(plan),
                              plan.model.input.is_text() ? "" : ", or larger images",
                              ranks ? ", or parallel.sync_batch_norm: true" : ""));
}

[[noreturn]] void refuse_short_batch(const Plan& plan, const std::string& attempt) {
  const auto shape = plan.data.schedule().shape();
  std::string others = attempt.empty() ? "use merge to join it to the batch before, drop to leave it out" : "use drop";
  if (shape.ranks > 1) others += ", or parallel.sync_batch_norm: true";
  throw UserError(fmt::format(
      "train.short_batch: {}; the last batch of an epoch has only one sample{}{}: {}, or another data.batch_size: "
      "{}, {} a batch",
      one_value(plan), shape.ranks > 1 ? " on one of the ranks" : "", attempt, others, counted(shape.samples, "sample"),
      shape.ranks * shape.batch_size));
}

}  // namespace

bool fit_short_batch(Plan& plan, const Recipe& recipe) {
  DataPlan& data = plan.data;
  const ShortBatch wanted = recipe.train.short_batch;
  const bool together = recipe.parallel.sync_batch_norm && data.ranks > 1;
  const auto no_effect = [&](const std::string& why) {
    if (wanted != ShortBatch::error) plan.notes.push_back(fmt::format("train.short_batch has no effect here: {}", why));
    return false;
  };
  if (plan.model.layers.least_norm_values == 0) return no_effect(plan.model.has_no("batch-norm"));
  if (plan.model.layers.least_norm_values > 1)
    return no_effect(
        fmt::format("every batch-norm has {} or more values of a sample", plan.model.layers.least_norm_values));
  if ((together ? data.ranks : 1) * data.batch_size == 1) refuse_every_batch(plan);
  const auto shape = data.schedule().shape();
  if (shape.short_batch() == 0 || samples_in_last(data, together) > 1)
    return no_effect("no batch of an epoch has a single sample");
  if (plan.steps && *plan.steps < data.schedule().steps_per_epoch())
    return no_effect("the run ends before the last batch of an epoch");
  if (wanted == ShortBatch::error) refuse_short_batch(plan, "");
  data.last_batch = wanted == ShortBatch::drop ? LastBatch::drop : LastBatch::merge;
  if (wanted == ShortBatch::merge && samples_in_last(data, together) < 2)
    refuse_short_batch(plan, ", which the ranks cannot share so that each has two");
  plan.notes.push_back(wanted == ShortBatch::drop
                           ? fmt::format("train.short_batch leaves {} of each epoch out, the last batch",
                                         counted(shape.short_batch(), "sample"))
                           : fmt::format("train.short_batch: the last batch of an epoch has {}",
                                         data.ranks == 1 ? counted(data.schedule().largest_items(), "sample")
                                                         : fmt::format("{}, which all ranks share evenly",
                                                                       counted(shape.short_batch(), "sample"))));
  return true;
}

}  // namespace trainopt
