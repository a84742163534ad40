#include "train/watch.h"

#include "base/units.h"
#include "train/plan.h"
#include "train/ranks.h"
#include "train/step.h"

#include <fmt/format.h>

#include <utility>

namespace trainopt {

StepWatch::StepWatch(const Plan& plan, Step& step, RankAgreement& ranks, RunOutcome& outcome, MemoryRecorder* recorder)
    : plan_(plan), step_(step), ranks_(ranks), outcome_(outcome), memory_(recorder, plan.memory_snapshot) {}

void StepWatch::attach(const std::filesystem::path& run_dir) {
  profiler_ = plan_.profiler.build(step_.context());
  memory_.attach(step_.model(),
                 (run_dir / "memory" / fmt::format("rank{}", step_.context().communicator->rank())).string());
}

void StepWatch::begin() {
  observed_ =
      ObservedStep::if_due(outcome_.trace, step_.parameters(), steps_, plan_.steps ? *plan_.steps - outcome_.steps : 2);
  profiling_ = profiler_->begin_step(outcome_.steps + 1);
  memory_.begin_step(outcome_.steps + 1);
}

void StepWatch::file_gradients() { memory_.file_gradients(step_.parameters()); }

void StepWatch::fill(PendingRecord& record, BatchSource& batches, const at::Tensor& grad_norm) {
  ++steps_;
  const auto stats = batches.take_stats();
  if (observed_)
    observed_->finish({outcome_.steps, stats, step_.parameters(), step_.optimizer(), step_.gradient_bytes()});
  memory_.end_step(outcome_.steps, observed_ != nullptr, outcome_.trace);
  step_.runner().report(outcome_.trace);
  step_.parameters().report(outcome_.trace);
  outcome_.trace.loader.copies = stats.copies;
  // Counted over the whole run, because an epoch may end much later than the observed step.
  outcome_.trace.loader.threads = stats.threads;
  outcome_.trace.loader.thread_starts = stats.thread_starts;
  if (stats.work) (outcome_.loading ? *outcome_.loading : outcome_.loading.emplace()) += *stats.work;
  step_.phases().move_to(record);
  record.set(profiling_);
  record.set(Metric::data_wait_ms, stats.data_wait_ms);
  if (stats.copy_ms) record.set(Metric::copy_ms, *stats.copy_ms);
  add_storage(stats.storage, record);
  if (grad_norm.defined()) record.add(Metric::grad_norm, grad_norm);
  if (const auto scale = step_.precision().loss_scale(); scale.defined()) record.add(Metric::loss_scale, scale);
  if (step_.guard().flag().defined()) record.add(Metric::nonfinite, step_.guard().flag());
  record.set_memory(plan_.device);
  add_memory_and_traffic(record);
}

void StepWatch::add_storage(const std::optional<StorageUse>& now, PendingRecord& record) {
  if (!now) return;
  const StorageUse before = std::exchange(storage_, *now);
  record.set(Metric::storage_mib, mib(now->fetched_bytes - before.fetched_bytes));
  const int64_t hit = now->hit_bytes - before.hit_bytes, missed = now->missed_bytes - before.missed_bytes;
  if (hit + missed > 0)
    record.set(Metric::cache_hit_pct, 100 * static_cast<double>(hit) / static_cast<double>(hit + missed));
}

void StepWatch::add_memory_and_traffic(PendingRecord& record) {
  record.set(Metric::parameters_mib, mib(step_.parameters().parameter_bytes()));
  record.set(Metric::gradients_mib, mib(step_.gradient_bytes()));
  record.set(Metric::optimizer_mib, mib(step_.optimizer().state_bytes()));
  const RankAgreement::Sent sent = ranks_.add_traffic(record);
  if (outcome_.trace.step != outcome_.steps) return;
  outcome_.trace.sent_bytes = sent.all;
  outcome_.trace.across_bytes = sent.across;
}

void StepWatch::end() {
  const bool recorded = profiler_->ends_recording();
  observed_.reset();
  profiler_->end_step();
  profiler_->report(outcome_.trace);
  if (recorded) ranks_.drop_traffic();
}

void StepWatch::finish() {
  profiler_->finish();
  memory_.finish(outcome_.trace);
}

void StepWatch::forget_storage() {
  if (plan_.data.files) storage_ = plan_.data.files->use().value_or(StorageUse());
}

void StepWatch::out_of_memory() {
  memory_.file_gradients(step_.parameters());
  memory_.out_of_memory(outcome_.steps + 1, plan_.device, outcome_.trace);
}

}  // namespace trainopt
