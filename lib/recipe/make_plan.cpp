#include "recipe/make_plan.h"

#include "optimizations/channels_last/channels_last.h"
#include "optimizations/cudnn_benchmark/cudnn_benchmark.h"
#include "optimizations/fused_optimizer/fused_optimizer.h"
#include "optimizations/loading/loading.h"
#include "optimizations/set_to_none/set_to_none.h"
#include "optimizations/tf32/tf32.h"
#include "recipe/plain_plan.h"
#include "train/dump.h"

namespace trainopt {
namespace {

/// Applies passes by name: skips those that are off or left out, keeps each one's outcome, and refuses those without effect if strict.
class PlanPasses {
 public:
  PlanPasses(Plan& plan, const Without& without, bool strict) : plan_(plan), without_(without), strict_(strict) {}

  template <class Apply>
  void operator()(const std::string& name, bool on, Apply apply) {
    if (on) run(name, "true", [&] { return apply(plan_); });
  }
  template <class Config, class Apply>
  void operator()(const std::string& name, const Switch<Config>& option, Apply apply) {
    if (option.on) run(name, "true", [&] { return apply(plan_, option.options); });
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
    if (!outcome.has_effect && strict_) throw UserError(fmt::format("{} has no effect here, which strict: true forbids: {}", name, outcome.text));
    plan_.switches.push_back({name, std::move(requested), std::move(outcome)});
  }

  Plan& plan_;
  const Without& without_;
  bool strict_;
};

}  // namespace

Plan make_plan(const Recipe& recipe, const Machine& machine, const Without& without) {
  Plan plan = plain_plan(recipe, machine);
  PlanPasses pass(plan, without, recipe.strict);
  const auto& o = recipe.optimizations;
  const auto& data = recipe.data;
  // The loader's own keys
  pass("num_workers",        data.num_workers, 0, loading::workers);
  pass("persistent_workers", data.persistent_workers, loading::persistent_workers);
  pass("pin_memory",         data.pin_memory, loading::pin_memory);
  pass("non_blocking",       data.non_blocking, loading::non_blocking);
  // The step
  pass("channels_last",      o.channels_last, channels_last::apply);
  pass("tf32",               o.tf32, tf32::apply);
  pass("cudnn_benchmark",    o.cudnn_benchmark, cudnn_benchmark::apply);
  pass("amp",                o.amp, amp::apply);
  pass("set_to_none",        o.set_to_none, set_to_none::apply);
  pass("device_preprocess",  o.device_preprocess, device_preprocess::apply);
  pass("fused_optimizer",    o.fused_optimizer, fused_optimizer::apply);
  add_dump(plan);                            // outermost: sees what the slots really did
  return plan;
}

}  // namespace trainopt
