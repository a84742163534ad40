#include "recipe/make_plan.h"

#include "config/load.h"
#include "debugging/debug.h"
#include "debugging/dump.h"
#include "debugging/gradcheck/gradcheck.h"
#include "model/catalogue.h"
#include "optimizations/activation_checkpointing/activation_checkpointing.h"
#include "optimizations/attention/attention.h"
#include "optimizations/channels_last/channels_last.h"
#include "optimizations/cuda_allocator/cuda_allocator.h"
#include "optimizations/cuda_graph/cuda_graph.h"
#include "optimizations/cudnn_benchmark/cudnn_benchmark.h"
#include "optimizations/device_cache/device_cache.h"
#include "optimizations/fp8/fp8.h"
#include "optimizations/fused_kernels/fused_kernels.h"
#include "optimizations/fused_optimizer/fused_optimizer.h"
#include "optimizations/loading/loading.h"
#include "optimizations/pipeline_stages/pipeline_stages.h"
#include "optimizations/precision/precision.h"
#include "optimizations/set_to_none/set_to_none.h"
#include "optimizations/sharding/sharding.h"
#include "optimizations/tf32/tf32.h"
#include "optimizations/winograd/winograd.h"
#include "recipe/plain_plan.h"
#include "recipe/plan_machine.h"
#include "recipe/recipe_io.h"
#include "train/observe/profiler.h"

#include <algorithm>

namespace trainopt {
namespace {

/// A numeric option: any value other than the default turns the optimization on.
struct Number {
  int64_t value, standard;
};
/// A number that may be left to the program.
struct AutoNumber {
  AutoOr<int64_t> value;
  int64_t standard;
};
/// An option with words as values; `turns_on` is one that turns the optimization on in a plain recipe.
struct Word {
  bool on;
  std::string_view value, turns_on;
};

// Common functions of the list's option types: bool, Switch, Number, AutoNumber and Word.
bool is_on(bool on) { return on; }
template <class Config>
bool is_on(const Switch<Config>& option) {
  return option.on;
}
bool is_on(const Number& number) { return number.value != number.standard; }
bool is_on(const AutoNumber& number) { return number.value != AutoOr(number.standard); }
bool is_on(const Word& word) { return word.on; }

std::string requested(bool) { return "true"; }
template <class Config>
std::string requested(const Switch<Config>& option) {
  const Json chosen = to_json(option.options);
  return chosen == to_json(Config()) ? "true" : json_text(chosen);
}
std::string requested(const Number& number) { return std::to_string(number.value); }
std::string requested(const AutoNumber& number) {
  return number.value.is_auto() ? "auto" : std::to_string(*number.value.value);
}
std::string requested(const Word& word) { return std::string(word.value); }

/// The value that turns the option on in an otherwise plain recipe.
template <class Option>
std::string turned_on_by(const Option&) {
  return "true";
}
std::string turned_on_by(const Number& number) { return std::to_string(number.standard + 1); }
std::string turned_on_by(const AutoNumber& number) { return std::to_string(number.standard + 1); }
std::string turned_on_by(const Word& word) { return std::string(word.turns_on); }

template <class Option, class Call, class... First>
auto call_with(const Option&, Call call, First&... first) {
  return call(first...);
}
template <class Config, class Call, class... First>
auto call_with(const Switch<Config>& option, Call call, First&... first) {
  return call(first..., option.options);
}
template <class Call, class... First>
auto call_with(const Number& number, Call call, First&... first) {
  return call(first..., number.value);
}
template <class Call, class... First>
auto call_with(const AutoNumber& number, Call call, First&... first) {
  return call(first..., number.value.value);
}

/// What decides whether an option that is not given is on.
struct ModelFacts {
  int64_t replicas = 1;  ///< ranks that share the data
  bool has_attention = false;
  bool attends = false;  ///< some of it is chosen by `auto`: all but what a program writes out and nothing replaces
  bool drops = false;    ///< its attention drops weights, which only the plain implementation does
};

/// Those that a recipe alone tells; what a program has is not known.
ModelFacts facts_of(const Recipe& recipe) {
  const ModelTraits& model = traits_of(recipe.model.name);
  const bool has_attention = model.transformer.has_value();
  return {.has_attention = has_attention, .attends = has_attention, .drops = model.text && recipe.model.dropout > 0};
}
ModelFacts facts_of(const Recipe& recipe, const Plan& plan) {
  ModelFacts facts = facts_of(recipe);
  facts.replicas = plan.stages.replica.ranks;
  const LayerCounts& layers = plan.model.layers;
  const bool are_fused = recipe.optimizations.fused_kernels && plan.device.is_cpu();
  facts.has_attention = layers.attentions > 0;
  facts.attends = are_fused ? facts.has_attention : layers.attentions > layers.written_attentions;
  facts.drops |= layers.attention_drops;
  return facts;
}

/// The list of all optimizations, in the order in which they are applied. Each line names an Info, the recipe's option
/// and apply(), and check() if the optimization may contradict other parts of a recipe. `pass` is one of the readers
/// below.
template <class Pass>
void for_each_optimization(const Recipe& recipe, const ModelFacts& facts, Pass pass) {
  const auto& o = recipe.optimizations;
  const auto& data = recipe.data;
  const auto& parallel = recipe.parallel;
  const DataConfig standard;
  const bool several = facts.replicas > 1 || parallel.sharding_strategy != ShardingStrategy::none;
  const Word cache{data.cache == CacheKind::device, word_of(data.cache.kind), "device"};
  const Word strategy{several, word_of(parallel.sharding_strategy), "zero1"};
  // Every model with attention has one of its implementations; math is the plain one, and the only one with dropout.
  const bool attends = facts.attends, chooses = o.attention == AttentionKernel::automatic, drops = facts.drops;
  const bool is_math = facts.has_attention && o.attention == AttentionKernel::math;
  const bool is_on_here = chooses ? attends && !drops : !is_math;
  const auto turned_on = attends ? AttentionKernel::automatic : AttentionKernel::flash;
  const auto implementation = is_on_here ? o.attention : turned_on;
  const Word attention{is_on_here, word_of(o.attention), word_of(turned_on)};
  // clang-format off
  // The loader's own keys
  pass(device_cache::kInfo,         cache, device_cache::apply);
  pass(loading::kBatchSize,         Number{data.batch_size, standard.batch_size}, loading::batch_size);
  pass(loading::kWorkers,           AutoNumber{data.num_workers, *standard.num_workers.value}, loading::workers);
  pass(loading::kPrefetchFactor,    Number{data.prefetch_factor, standard.prefetch_factor}, loading::prefetch_factor);
  pass(loading::kPersistentWorkers, data.persistent_workers, loading::persistent_workers);
  pass(loading::kPinMemory,         data.pin_memory, loading::pin_memory);
  pass(loading::kNonBlocking,       data.non_blocking, loading::non_blocking);
  // The process
  pass(host_allocator::kInfo,       o.host_allocator, host_allocator::apply);
  pass(cuda_allocator::kInfo,       o.cuda_allocator, cuda_allocator::apply, cuda_allocator::check);
  // The step
  pass(channels_last::kInfo,        o.channels_last, channels_last::apply);
  pass(fused_kernels::kInfo,        o.fused_kernels, fused_kernels::apply, fused_kernels::check);
  pass(o.winograd.options.products == winograd::ProductType::float32 ? winograd::kInfo : winograd::kRoundedInfo,
       o.winograd, winograd::apply);
  pass(tf32::kInfo,                 o.tf32, tf32::apply);
  pass(cudnn_benchmark::kInfo,      o.cudnn_benchmark, cudnn_benchmark::apply, cudnn_benchmark::check);
  pass(amp::kInfo,                  o.amp, amp::apply, amp::check);
  pass(precision::kInfo,            o.precision, precision::apply, precision::check);
  pass(fp8::kInfo,                  o.fp8, fp8::apply, fp8::check);
  pass(attention::kInfo,            attention, [&](Plan& plan) { return attention::apply(plan, implementation); });
  pass(activation_checkpointing::kInfo, o.activation_checkpointing, activation_checkpointing::apply,
       activation_checkpointing::check);
  pass(set_to_none::kInfo,          o.set_to_none, set_to_none::apply);
  pass(device_preprocess::kInfo,    o.device_preprocess, device_preprocess::apply);
  pass(fused_optimizer::kInfo,      o.fused_optimizer, fused_optimizer::apply, fused_optimizer::check);
  // Several ranks
  pass(pipeline_stages::kInfo,      Number{parallel.pipeline.stages, 1},
       [&](Plan& plan, int64_t) { return pipeline_stages::apply(plan, parallel.pipeline); });
  pass(sharding::kInfo,             strategy, [&](Plan& plan) { return sharding::apply(plan, parallel); });
  pass(cuda_graph::kInfo,           o.cuda_graph, cuda_graph::apply, cuda_graph::check);  // last: it records the rest
  // clang-format on
}

OptionChecks checks_of(const Recipe& recipe) {
  return {.deterministic = recipe.deterministic,
          .sync_batch_norm = recipe.parallel.sync_batch_norm,
          .stale_updates = recipe.parallel.async_updates.staleness > 0,
          .sharded = recipe.parallel.sharding_strategy != ShardingStrategy::none,
          .sends_float32 = recipe.parallel.gradient_dtype == WireType::float32};
}

void refuse_without_effect(const Plan& plan) {
  std::string problems;
  const auto add = [&](const std::string& name, const std::string& reason) {
    problems += fmt::format("{}{} has no effect here, which strict: true forbids: {}", problems.empty() ? "" : "\n",
                            name, reason);
  };
  for (const auto& entry : plan.switches)
    if (!entry.outcome.has_effect) add(entry.name, entry.outcome.text);
  if (const auto reason = why_no_nccl(plan)) add("parallel.nccl", *reason);
  if (!problems.empty()) throw UserError(problems);
}

}  // namespace

Plan make_plan(const Recipe& recipe, const Machine& machine, const RankPosition& position, const Without& without) {
  const int64_t stages = without.contains(pipeline_stages::kInfo.name) ? 1 : recipe.parallel.pipeline.stages;
  Plan plan = plain_plan(recipe, machine, position, stages);
  for_each_optimization(recipe, facts_of(recipe, plan), [&](const Info& info, const auto& option, auto apply, auto...) {
    if (!is_on(option)) return;
    if (without.contains(info.name))
      plan.notes.push_back(fmt::format("{} is excluded on request", info.name));
    else {
      Outcome outcome = call_with(option, apply, plan);
      plan.switches.push_back({info.name, requested(option), std::move(outcome)});
    }
  });
  if (!without.contains(sharding::kInfo.name))
    for (PlannedSwitch& part : sharding::parts_of(plan, recipe.parallel)) plan.switches.push_back(std::move(part));
  for (PlannedSwitch& entry : plan.switches)
    if (entry.outcome.doubt) entry.doubt = entry.outcome.doubt(plan);
  if (recipe.strict) refuse_without_effect(plan);
  if (const auto reason = why_no_nccl(plan))
    plan.notes.push_back(fmt::format("parallel.nccl has no effect here: {}", *reason));
  if (recipe.debug.gradcheck) gradcheck::add_gradcheck(plan);
  if (recipe.profiler.on) add_profiler(plan, recipe.profiler.options);
  add_debug(plan, recipe.debug);
  add_dump(plan);  // last, so that its wrappers are outermost and see what the slots really did
  return plan;
}

std::vector<RecipeProblem> check_optimizations(const Recipe& recipe) {
  OptionChecks checks = checks_of(recipe);
  for_each_optimization(recipe, facts_of(recipe), [&](const Info&, const auto& option, auto, auto... check) {
    if (is_on(option)) (call_with(option, check, checks), ...);
  });
  return checks.problems;
}

std::vector<UnusedSwitch> unused_switches(const Recipe& recipe, const Plan& plan) {
  std::vector<UnusedSwitch> unused;
  for_each_optimization(recipe, facts_of(recipe, plan),
                        [&](const Info& info, const auto& option, auto apply, auto... check) {
                          const std::string key = key_of_switch(info.name);
                          const bool changes_training = info.exactness == Exactness::new_math;
                          if (is_on(option) || changes_training || !key.starts_with("optimizations.")) return;
                          OptionChecks checks = checks_of(recipe);
                          (call_with(option, check, checks), ...);
                          if (!checks.problems.empty()) return;
                          try {
                            Plan changed = plan;
                            if (const Outcome outcome = call_with(option, apply, changed);
                                outcome.has_effect && (!outcome.doubt || outcome.doubt(changed).empty()))
                              unused.push_back({fmt::format("{}={}", key, turned_on_by(option)), outcome.text});
                          } catch (const UserError&) {  // named recovery: it cannot be combined with what is on
                          }
                        });
  return unused;
}

std::vector<std::string> new_math_switches(const Recipe& recipe) {
  std::vector<std::string> names;
  for_each_optimization(recipe, facts_of(recipe), [&](const Info& info, const auto& option, auto...) {
    if (is_on(option) && info.exactness == Exactness::new_math) names.emplace_back(info.name);
  });
  return names;
}

std::vector<CatalogueEntry> catalogue() {
  std::vector<CatalogueEntry> all;
  for_each_optimization(Recipe(), {}, [&](const Info& info, const auto& option, auto...) {
    all.push_back({info, key_of_switch(info.name), turned_on_by(option)});
  });
  return all;
}

bool is_of_the_job(const std::string& name) {
  const auto all = catalogue();
  return std::any_of(all.begin(), all.end(),
                     [&](const CatalogueEntry& each) { return each.info.name == name && each.info.of_the_job; });
}

std::string switched_off(const std::string& name) {
  const std::string key = key_of_switch(name);
  const auto all = catalogue();
  const auto entry = std::find_if(all.begin(), all.end(), [&](const CatalogueEntry& each) { return each.key == key; });
  return fmt::format("{}={}", key, entry == all.end() ? "null" : entry->info.off);
}

}  // namespace trainopt
