#include "recipe/make_plan.h"

#include "config/load.h"
#include "optimizations/channels_last/channels_last.h"
#include "optimizations/cuda_graph/cuda_graph.h"
#include "optimizations/cudnn_benchmark/cudnn_benchmark.h"
#include "optimizations/device_cache/device_cache.h"
#include "optimizations/fused_kernels/fused_kernels.h"
#include "optimizations/fused_optimizer/fused_optimizer.h"
#include "optimizations/loading/loading.h"
#include "optimizations/set_to_none/set_to_none.h"
#include "optimizations/sharding/sharding.h"
#include "optimizations/tf32/tf32.h"
#include "optimizations/winograd/winograd.h"
#include "recipe/plain_plan.h"
#include "train/dump.h"

namespace trainopt {
namespace {

/// Applies passes by name: skips those that are off or left out, keeps each one's outcome, and refuses those without
/// effect if strict.
class PlanPasses {
 public:
  PlanPasses(Plan& plan, const Without& without) : plan_(plan), without_(without) {}

  template <class Apply>
  void operator()(const std::string& name, bool on, Apply apply) {
    if (on) run(name, "true", [&] { return apply(plan_); });
  }
  template <class Config, class Apply>
  void operator()(const std::string& name, const Switch<Config>& option, Apply apply) {
    if (!option.on) return;
    const Json chosen = to_json(option.options);
    run(name, chosen == to_json(Config()) ? "true" : chosen.dump(), [&] { return apply(plan_, option.options); });
  }
  template <class Apply>
  void operator()(const std::string& name, bool on, const std::string& requested, Apply apply) {
    if (on) run(name, requested, [&] { return apply(plan_); });
  }
  template <class Apply>
  void operator()(const std::string& name, int64_t value, int64_t off, Apply apply) {
    if (value != off) run(name, std::to_string(value), [&] { return apply(plan_, value); });
  }

 private:
  template <class Run>
  void run(const std::string& name, std::string requested, Run apply) {
    if (without_.contains(name)) {
      plan_.notes.push_back(fmt::format("{} is left out on request", name));
      return;
    }
    Outcome outcome = apply();
    plan_.switches.push_back({name, std::move(requested), std::move(outcome)});
  }

  Plan& plan_;
  const Without& without_;
};

void refuse_without_effect(const std::vector<PlannedSwitch>& switches) {
  std::string problems;
  for (const auto& entry : switches)
    if (!entry.outcome.has_effect)
      problems += fmt::format("{}{} has no effect here, which strict: true forbids: {}", problems.empty() ? "" : "\n",
                              entry.name, entry.outcome.text);
  if (!problems.empty()) throw UserError(problems);
}

}  // namespace

Plan make_plan(const Recipe& recipe, const Machine& machine, const RankPosition& position, const Without& without) {
  Plan plan = plain_plan(recipe, machine, position);
  PlanPasses pass(plan, without);
  const auto& o = recipe.optimizations;
  const auto& data = recipe.data;
  // clang-format off
  // The loader's own keys
  const DataConfig standard;
  pass("cache",              data.cache == CacheKind::device, std::string(word_of(data.cache)), device_cache::apply);
  pass("batch_size",         data.batch_size, standard.batch_size, loading::batch_size);
  pass("num_workers",        data.num_workers, standard.num_workers, loading::workers);
  pass("prefetch_factor",    data.prefetch_factor, standard.prefetch_factor, loading::prefetch_factor);
  pass("persistent_workers", data.persistent_workers, loading::persistent_workers);
  pass("pin_memory",         data.pin_memory, loading::pin_memory);
  pass("non_blocking",       data.non_blocking, loading::non_blocking);
  // The process
  pass("host_allocator",     o.host_allocator, host_allocator::apply);
  // The step
  pass("channels_last",      o.channels_last, channels_last::apply);
  pass("fused_kernels",      o.fused_kernels, fused_kernels::apply);
  pass("winograd",           o.winograd, winograd::apply);
  pass("tf32",               o.tf32, tf32::apply);
  pass("cudnn_benchmark",    o.cudnn_benchmark, cudnn_benchmark::apply);
  pass("amp",                o.amp, amp::apply);
  pass("set_to_none",        o.set_to_none, set_to_none::apply);
  pass("device_preprocess",  o.device_preprocess, device_preprocess::apply);
  pass("fused_optimizer",    o.fused_optimizer, fused_optimizer::apply);
  // Several ranks
  const auto& parallel = recipe.parallel;
  const bool several = position.ranks > 1 || !(to_json(parallel) == to_json(ParallelConfig()));
  pass("parallel.sharding_strategy", several, std::string(word_of(parallel.sharding_strategy)),
       [&](Plan& shared) { return sharding::apply(shared, parallel); });
  pass("cuda_graph",         o.cuda_graph, cuda_graph::apply);   // last: records what is above
  // clang-format on
  if (recipe.strict) refuse_without_effect(plan.switches);
  add_dump(plan);  // outermost: sees what the slots really did
  return plan;
}

}  // namespace trainopt
