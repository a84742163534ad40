#include "recipe/short_batch.h"

#include "base/units.h"

#include <algorithm>

namespace trainopt {
namespace {

/// What a micro-batch must have on every rank.
struct Needs {
  int64_t least_batch = 1;      ///< samples of a rank
  bool needs_two = false;       ///< a batch-norm sees one value of a channel in each sample
  bool needs_together = false;  ///< its statistics cover all ranks
};

/// Whether the last micro-batch of an epoch has enough for every rank.
bool is_usable(const DataSpec& data, const Needs& needs) {
  BatchSchedule::Shape shape = data.schedule().shape();
  shape.rank = shape.ranks - 1;  // no other rank has fewer
  const BatchSchedule schedule(shape);
  const int64_t step = schedule.steps_per_epoch() - 1;
  const int64_t items = schedule.at(step, schedule.micros_in_step(step) - 1).items;
  // With two ranks or more, of which each has a sample, common statistics have two values.
  return items >= std::max<int64_t>(needs.least_batch, needs.needs_two && !needs.needs_together ? 2 : 1);
}

std::string one_value(const Plan& plan) {
  const InputShape& input = plan.model.input;
  return fmt::format(
      "batch-norm needs more than one value of each channel, and a sample{} leaves one in a layer of the {}",
      input.is_text() ? "" : fmt::format(" of {} × {} pixels", input.height, input.width), plan.model.noun());
}

[[noreturn]] void refuse_every_batch(const Plan& plan) {
  throw UserError(fmt::format("data.batch_size: {}; use at least 2{}{}", one_value(plan),
                              plan.model.input.is_text() ? "" : ", or larger images",
                              plan.data.ranks > 1 ? ", or parallel.sync_batch_norm: true" : ""));
}

/// Why the last batch cannot be used, and what can be done.
[[noreturn]] void refuse_short_batch(const Plan& plan, const Needs& needs, bool can_merge) {
  const auto shape = plan.data.schedule().shape();
  const int64_t left = shape.short_batch(), before_last = (shape.ranks - 1) * shape.batch_size;
  const bool is_alone = shape.ranks == 1;
  std::string why = fmt::format("the program was exported for batches of at least {}", needs.least_batch);
  if (left <= before_last)
    why = fmt::format("some of {} ranks would have no sample", shape.ranks);
  else if (needs.needs_two && left - before_last == 1)
    why = one_value(plan);
  std::vector<std::string> ways;
  if (can_merge) ways.emplace_back(is_alone ? "merge joins it to the batch before" : "merge shares it evenly");
  ways.emplace_back("drop leaves it out");
  const bool helps = !is_alone && needs.needs_two && !needs.needs_together && left > before_last;
  throw UserError(fmt::format("train.short_batch: {}; the last batch of an epoch has {}{}; {}{}: {}, {} a batch", why,
                              counted(left, "sample"), is_alone ? "" : fmt::format(" for {} ranks", shape.ranks),
                              fmt::join(ways, ", "),
                              helps ? ", and parallel.sync_batch_norm: true computes together" : "",
                              counted(shape.samples, "sample"), shape.ranks * shape.batch_size));
}

std::string why_no_effect(const Plan& plan) {
  const int64_t values = plan.model.layers.least_norm_values;
  if (plan.data.schedule().shape().short_batch() == 0) return "no batch of an epoch is short";
  if (values == 0) return plan.model.has_no("batch-norm");
  if (values > 1) return fmt::format("every batch-norm has {} or more values of a sample", values);
  return "the last batch of an epoch is large enough";
}

}  // namespace

bool fit_short_batch(Plan& plan, const Recipe& recipe, int64_t least_batch) {
  DataPlan& data = plan.data;
  const ShortBatch wanted = recipe.train.short_batch;
  const Needs needs{.least_batch = least_batch,
                    .needs_two = plan.model.layers.least_norm_values == 1,
                    .needs_together = recipe.parallel.sync_batch_norm && data.ranks > 1};
  if (needs.needs_two && !needs.needs_together && data.batch_size == 1) refuse_every_batch(plan);
  const auto shape = data.schedule().shape();
  if (shape.short_batch() == 0 || is_usable(data, needs)) {
    if (wanted != ShortBatch::error)
      plan.notes.push_back(fmt::format("train.short_batch has no effect here: {}", why_no_effect(plan)));
    return false;
  }
  const bool is_only = shape.samples < shape.ranks * shape.batch_size;
  if (wanted == ShortBatch::error && plan.steps && *plan.steps < data.schedule().steps_per_epoch() && !is_only) {
    data.last_batch = LastBatch::drop;  // the run ends before; a comparison of it goes on, and has the batches before
    return false;
  }
  const auto usable_with = [&](LastBatch last) {
    DataSpec changed = data;
    changed.last_batch = last;
    return !why_no_step(BatchSchedule::Shape{.samples = shape.samples,
                                             .batch_size = shape.batch_size,
                                             .ranks = shape.ranks,
                                             .accumulation = shape.accumulation,
                                             .drop_last = false,
                                             .last_batch = last}) &&
           is_usable(changed, needs);
  };
  const bool can_merge = usable_with(LastBatch::merge);
  if (wanted == ShortBatch::error || (wanted == ShortBatch::merge && !can_merge && !is_only))
    refuse_short_batch(plan, needs, can_merge);
  data.last_batch = wanted == ShortBatch::drop ? LastBatch::drop : LastBatch::merge;
  const std::string left = counted(shape.short_batch(), "sample");
  if (wanted == ShortBatch::drop)
    plan.notes.push_back(fmt::format("train.short_batch leaves {} of each epoch out, the last batch", left));
  else if (data.ranks == 1)
    plan.notes.push_back(fmt::format("train.short_batch: the last batch of an epoch has {}",
                                     counted(data.schedule().largest_items(), "sample")));
  else
    plan.notes.push_back(
        fmt::format("train.short_batch: the last batch of an epoch has {}, which all ranks share evenly", left));
  return true;
}

}  // namespace trainopt
