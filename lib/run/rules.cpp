#include "run/rules.h"

#include "data/data_spec.h"
#include "recipe/recipe_io.h"
#include "statistics/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {
namespace {

using enum Exactness;
using namespace conditions;

// Conditions and changes that several rules share.

bool recomputes(const Situation& s) { return s.recipe.optimizations.activation_checkpointing.on; }
bool multiplies_in_16_bits(const Situation& s) { return s.recipe.optimizations.amp.on; }
bool convolves_by_winograd_in_16_bits(const Situation& s) {
  return multiplies_in_16_bits(s) && s.recipe.optimizations.winograd.on;
}
bool multiplies_in_32_bits(const Situation& s) { return !multiplies_in_16_bits(s); }

using Changes = std::function<std::vector<Words>(const Situation&)>;
using Condition = bool (*)(const Situation&);

/// Proposes one change where the condition holds.
Changes change(
    const Words& words, Condition condition = [](const Situation&) { return true; }) {
  return [words, condition](const Situation& s) {
    return condition(s) ? std::vector<Words>{words} : std::vector<Words>();
  };
}
/// What rows measured with this project show at about this size.
auto saves(double share) {
  return [share](const Situation&, const Words&) { return share; };
}

/// The share of the products' time that another type saves, by the measured peaks.
double of_products(const Situation& s, const std::string& from, const std::string& to) {
  if (!s.peaks) return 0;
  const auto a = s.peaks->products.find(from), b = s.peaks->products.find(to);
  if (a == s.peaks->products.end() || b == s.peaks->products.end()) return 0;
  return 1 - a->second.flops_per_s / b->second.flops_per_s;
}

/// The share of computing that multiplies: what the products take alone, or by their peak.
double multiplying(const Situation& s) {
  return s.times.step.mfu_pct ? std::min(1.0, *s.times.step.mfu_pct / 100 / std::max(0.01, s.share("computing"))) : 0.5;
}

// Loader

std::vector<Words> more_threads(const Situation& s) {
  std::vector<Words> all;
  if (!has_loader(s)) return all;
  const int64_t now = s.plan.loader.num_workers, cores = s.plan.machine.cores;
  for (int64_t threads = std::max<int64_t>(1, 2 * now); threads <= 2 * cores; threads *= 2)
    all.push_back({fmt::format("data.num_workers={}", threads)});
  return all;
}

/// On a CPU every loader thread takes a core from the step.
std::vector<Words> fewer_threads(const Situation& s) {
  std::vector<Words> all;
  const int64_t now = s.plan.loader.num_workers, cores = s.plan.machine.cores;
  if (!has_threads(s) || !on_cpu(s) || now < cores) return all;
  for (int64_t threads = std::max<int64_t>(1, cores / 2); threads < now; threads *= 2)
    all.push_back({fmt::format("data.num_workers={}", threads)});
  return all;
}

/// Threads load while the step computes, and a step takes as long as the slower of the two. Without threads the waiting
/// is all of the loading; with them they were busy all the time, or there would be no waiting. On a CPU the cores that
/// load do not compute.
double saved_by_threads(const Situation& s, const Words& change) {
  const auto threads = static_cast<double>(std::stoll(change[0].substr(change[0].find('=') + 1)));
  const auto now = static_cast<double>(s.plan.loader.num_workers), cores = static_cast<double>(s.plan.machine.cores);
  const double waiting = s.share("loader"), rest = 1 - waiting, loading = now > 0 ? now : waiting;  // one thread's
  const double loaded = loading / (on_cpu(s) ? std::min(threads, cores) : threads);
  const double computed = on_cpu(s) ? rest + loading / cores : rest;
  return waiting > 0 ? (1 - std::max(loaded, computed)) / waiting : 0;
}

double saved_by_scaled_decoding(const Situation& s, const Words&) {
  return s.times.loader ? s.times.loader->decode_pct / 200 : 0.3;
}

/// A folder's images are kept decoded, others as files.
double saved_by_cache(const Situation& s, const Words&) {
  if (!s.times.loader) return 0.5;
  const bool is_decoded = format_of(s.recipe.data.dataset).caches_decoded;
  return (s.times.loader->read_pct + (is_decoded ? s.times.loader->decode_pct : 0)) / 100;
}

std::vector<Words> prefetch_more(const Situation& s) {
  constexpr int64_t kEnough = 16;
  const int64_t more = 2 * s.recipe.data.prefetch_factor;
  return has_threads(s) && more <= kEnough ? std::vector<Words>{{fmt::format("data.prefetch_factor={}", more)}}
                                           : std::vector<Words>();
}

std::vector<Words> more_requests(const Situation& s) {
  if (!s.times.storage || !s.times.storage->more_concurrency_helps()) return {};
  return {{fmt::format("data.storage.concurrency={}", 2 * s.recipe.data.storage.concurrency)}};
}

/// With the resize the loader only decodes; without it only the conversion to floating point moves.
std::vector<Words> finish_on_device(const Situation&) {
  return {{"optimizations.device_preprocess={resize: true}"}, {"optimizations.device_preprocess=true"}};
}

double saved_by_finish_on_device(const Situation& s, const Words& change) {
  const double half = s.times.loader ? s.times.loader->transform_pct / 200 : 0.2;
  return change[0].ends_with("=true") ? half : 1.5 * half;
}

// Computing

/// Keeps the global batch, in fewer, larger micro-batches.
std::vector<Words> larger_micro_batches(const Situation& s) {
  std::vector<Words> all;
  const int64_t pieces = s.plan.data.accumulation;
  for (int64_t fewer = 1; fewer < pieces; ++fewer)
    if (pieces % fewer == 0)
      all.push_back({fmt::format("data.batch_size={}", s.plan.data.batch_size * (pieces / fewer)),
                     fmt::format("train.gradient_accumulation_steps={}", fewer)});
  return all;
}

double saved_by_larger_micro_batches(const Situation& s, const Words& change) {
  const auto fewer = static_cast<double>(std::stoll(change[1].substr(change[1].find('=') + 1)));
  const double starts = s.share("computing") > 0 ? s.share("launches") / s.share("computing") : 0;
  return (1 - fewer / static_cast<double>(s.plan.data.accumulation)) * std::max(starts, 0.1);
}

/// Recomputing makes room for larger micro-batches where memory binds.
std::vector<Words> recomputed_micro_batches(const Situation& s) {
  std::vector<Words> all;
  if (!fills_memory(s) || recomputes(s)) return all;
  for (Words& words : larger_micro_batches(s)) {
    words.push_back("optimizations.activation_checkpointing=true");
    all.push_back(std::move(words));
  }
  return all;
}

/// A second forward pass is a third of the step's products.
double saved_by_recomputed_micro_batches(const Situation& s, const Words& change) {
  return saved_by_larger_micro_batches(s, change) - multiplying(s) / 3;
}

/// A larger global batch, with the rate that is usual for it. One that the recipe scales already follows by itself.
std::vector<Words> larger_batches(const Situation& s) {
  std::vector<Words> all;
  const auto& common = common_of(s.recipe.optimizer);
  const bool adaptive =
      !std::holds_alternative<SgdConfig>(s.recipe.optimizer) && !std::holds_alternative<LarsConfig>(s.recipe.optimizer);
  for (int64_t times = 2; times <= 8 && !s.recipe.data.global_batch_size; times *= 2) {
    Words words{fmt::format("data.batch_size={}", times * s.plan.data.batch_size)};
    if (common.lr_scaling == LrScaling::none) {
      words.push_back(fmt::format("optimizer.lr_scaling={}", word_of(adaptive ? LrScaling::sqrt : LrScaling::linear)));
      words.push_back(fmt::format("optimizer.reference_batch={}", s.plan.data.schedule().step_samples()));
    }
    all.push_back(std::move(words));
  }
  return all;
}

double saved_by_larger_batch(const Situation& s, const Words& change) {
  const auto batch = static_cast<double>(std::stoll(change[0].substr(change[0].find('=') + 1)));
  return 1 - static_cast<double>(s.plan.data.batch_size) / batch;
}

double saved_by_16_bits(const Situation& s, const Words&) {
  if (!s.peaks && !on_cpu(s)) return 0.4;  // every GPU that is supported multiplies faster so
  return multiplying(s) * std::max(0.0, of_products(s, "float32", "bfloat16"));
}
/// 32 bits save time where the processor multiplies 16-bit numbers in software, or most of the time goes into casts.
double saved_by_32_bits(const Situation& s, const Words&) {
  return std::max(0.0, of_products(s, "bfloat16", "float32"));
}
double saved_by_rounding(const Situation& s, const Words&) {
  return multiplying(s) * std::max(0.0, of_products(s, "float32", kRoundedFloat32));
}

/// The system's time for the pages that a step uses for the first time.
double saved_by_kept_memory(const Situation& s, const Words&) {
  if (!s.page_faults || s.times.step.mean_ms <= 0) return 0;
  constexpr double kUsualFaultUs = 0.25;  // a fault without a hypervisor; under one, 1.9 were measured
  const double fault_us = s.peaks ? s.peaks->page_fault_us.value_or(kUsualFaultUs) : kUsualFaultUs;
  return std::min(0.5, *s.page_faults * fault_us / 1e3 / s.times.step.mean_ms / std::max(0.01, s.share("computing")));
}

// Exchanges

std::vector<Words> larger_buckets(const Situation& s) {
  std::vector<Words> all;
  for (double mib = 4 * s.recipe.parallel.bucket_cap_mb; has_ranks(s) && mib <= 100; mib *= 4)
    all.push_back({fmt::format("parallel.bucket_cap_mb={:g}", mib)});
  return all;
}

/// Small pieces pay the start of an exchange each time.
double saved_by_larger_buckets(const Situation& s, const Words& change) {
  const double now = s.recipe.parallel.bucket_cap_mb, then = std::stod(change[0].substr(change[0].find('=') + 1));
  return (now < 4 ? 0.5 : 0.05) * (1 - now / then);
}

// Intervals

std::vector<Words> ten_times(const char* key, const std::optional<int64_t>& every) {
  return every ? std::vector<Words>{{fmt::format("{}={}", key, 10 * *every)}} : std::vector<Words>();
}
std::vector<Words> fewer_evaluations(const Situation& s) {
  return ten_times("evaluation.every_n_steps", s.recipe.evaluation.every_n_steps);
}
std::vector<Words> fewer_checkpoints(const Situation& s) {
  return ten_times("checkpoint.every_n_steps", s.recipe.checkpoint.every_n_steps);
}
std::vector<Words> fewer_records(const Situation& s) {
  return ten_times("logging.every_n_steps", s.recipe.logging.every_n_steps);
}

const std::vector<Rule> kRules{
    // part, what, changes, share saved, exactness, needs
    {"loader", "load with more threads", more_threads, saved_by_threads, same_bits, ""},
    {"computing", "load with fewer threads", fewer_threads, saves(0.1), same_bits, ""},
    {"loader", "prefetch more batches", prefetch_more, saves(0.1), same_bits, ""},
    {"loader", "fetch more at once from object storage", more_requests, saves(0.5), same_bits, ""},
    {"loader", "keep threads over the end of an epoch", change({"data.persistent_workers=true"}, has_threads),
     saves(0.1), same_bits, ""},
    {"loader", "decode JPEGs at reduced size", change({"data.decode=scaled"}, reads_files_of_images),
     saved_by_scaled_decoding, new_math, "images larger than the model's"},
    {"loader", "keep the data set in host memory", change({"data.cache=memory"}, has_memory_cache), saved_by_cache,
     same_bits, "memory for all of it, within data.memory_limit"},
    {"loader", "keep the data set on the device", change({"data.cache=device"}, loads_without_disk_cache), saves(0.9),
     same_bits, "memory for all of it"},
    {"loader", "finish images on the device", finish_on_device, saved_by_finish_on_device, same_math, ""},
    {"copy", "copy ahead from page-locked memory", change({"data.pin_memory=true", "data.non_blocking=true"}, has_gpu),
     saves(0.9), same_bits, ""},

    {"computing", "the same batch in fewer micro-batches", larger_micro_batches, saved_by_larger_micro_batches,
     same_math, "memory for larger activations", /*cuts_batch=*/true},
    {"computing", "recompute activations, for larger micro-batches", recomputed_micro_batches,
     saved_by_recomputed_micro_batches, same_math, "", /*cuts_batch=*/true},
    {"per step", "a larger batch, with its learning rate", larger_batches, saved_by_larger_batch, new_math,
     "memory for larger activations"},
    {"computing", "multiply in bfloat16", change({"optimizations.amp=true"}, multiplies_in_32_bits), saved_by_16_bits,
     same_math, ""},
    {"computing", "multiply in float32", change({"optimizations.amp=false"}, multiplies_in_16_bits), saved_by_32_bits,
     same_math, ""},
    {"computing", "round the factors of float32 products", change({"optimizations.tf32=true"}), saved_by_rounding,
     same_math, ""},
    {"computing", "store images channels-last", change({"optimizations.channels_last=true"}, convolves), saves(0.1),
     same_math, ""},
    {"computing", "fuse operations", change({"optimizations.fused_kernels=true"}), saves(0.1), same_math, ""},
    {"computing", "Winograd's convolutions", change({"optimizations.winograd=true"}), saves(0.3), same_math, ""},
    {"computing", "Winograd's products in bfloat16",
     change({"optimizations.winograd={products: bfloat16}"}, convolves_by_winograd_in_16_bits), saves(0.15), new_math,
     ""},
    {"computing", "time cuDNN's algorithms", change({"optimizations.cudnn_benchmark=true"}, convolves), saves(0.05),
     same_math, ""},
    {"computing", "let libtorch choose the attention kernel", change({"optimizations.attention=auto"}), saves(0.15),
     same_math, ""},
    {"computing", "keep freed memory", change({"optimizations.host_allocator=true"}), saved_by_kept_memory, same_bits,
     ""},
    {"computing", "let the GPU allocator's segments grow",
     change({"optimizations.cuda_allocator={expandable_segments: true}"}, fills_memory), saves(0.05), same_bits, ""},
    {"computing", "keep activations", change({"optimizations.activation_checkpointing=false"}, recomputes), saves(0.25),
     same_bits, "memory for them"},
    {"launches", "record the step once and replay it", change({"optimizations.cuda_graph=true"}), saves(0.8), same_bits,
     ""},
    {"update", "update all parameters in one pass", change({"optimizations.fused_optimizer=true"}), saves(0.6),
     same_math, ""},
    {"update", "drop gradients instead of zeroing them", change({"optimizations.set_to_none=true"}), saves(0.15),
     same_bits, ""},

    {"exchange", "exchange during backward", change({"parallel.overlap_comm=true"}, has_ranks), saves(0.5), same_bits,
     ""},
    {"exchange", "exchange larger pieces", larger_buckets, saved_by_larger_buckets, same_bits, ""},
    {"exchange", "exchange in 16 bits", change({"parallel.gradient_dtype=bfloat16"}, has_ranks), saves(0.5), new_math,
     ""},
    {"exchange", "keep all weights on every rank", change({"parallel.sharding_strategy=none"}, gathers_twice),
     saves(0.33), same_math, "memory for them"},

    {"records", "record a tenth of the steps", fewer_records, saves(0.9), same_bits, ""},
    {"evaluation", "evaluate a tenth as often", fewer_evaluations, saves(0.9), same_bits, ""},
    {"checkpoints", "write checkpoints in the background", change({"checkpoint.background=true"}), saves(0.6),
     same_bits, ""},
    {"checkpoints", "save a tenth as often", fewer_checkpoints, saves(0.9), same_bits, ""},
};

}  // namespace

const std::vector<Rule>& rules() { return kRules; }

namespace {

/// Whether every switch that the change turns on does something here, and is expected to pay.
bool may_pay(const Plan& before, const Plan& after) {
  for (const PlannedSwitch& each : after.switches) {
    const bool was_on = std::any_of(before.switches.begin(), before.switches.end(), [&](const PlannedSwitch& old) {
      return old.name == each.name && old.requested == each.requested;
    });
    if (!was_on && (!each.outcome.has_effect || !each.doubt.empty())) return false;
  }
  return true;
}

/// Whether the change alters the recipe, is allowed, and may pay.
bool works_here(const Situation& s, const Words& change) {
  const auto changed = with_words(s.recipe, change, s.plan.position.ranks);
  if (!changed || recipe_json(*changed) == recipe_json(s.recipe)) return false;
  const auto plan = plan_with(s.recipe, change, s.plan.machine, s.plan.position);
  return plan && may_pay(s.plan, *plan);
}

Exactness exactness_of(const Rule& rule, const Situation& s) {
  return rule.cuts_batch && s.plan.model.layers.all_batch_norms() > 0 ? Exactness::new_math : rule.exactness;
}

/// The recipe's number for the first key of a change; null if it has none.
std::optional<double> number_before(const Json& recipe, const Words& change) {
  const std::string key = change.front().substr(0, change.front().find('='));
  const size_t dot = key.find('.');
  const Json& section = recipe.at(key.substr(0, dot));
  const Json value = section.value(key.substr(dot + 1), Json());
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

}  // namespace

double Situation::share(std::string_view part) const {
  if (part == "computing") return share("compute") + share("memory bandwidth") + share("launches");
  if (part == "update" && limit.update_pct > 0) return limit.update_pct / 100;
  double sum = 0;
  for (const TimePart& each : limit.parts) {
    const bool per_step = each.name == "launches" || each.name == "update" || each.name == "exchange";
    const bool is_data = part == "loader" && each.name == "storage";
    if (each.name == part || is_data || (part == "per step" && per_step)) sum += each.share_pct / 100;
  }
  return sum;
}

std::vector<Proposal> propose(const Situation& s) {
  std::vector<Proposal> all;
  const double least = 1 + SequentialOptions().min_effect;
  const Json recipe = recipe_json(s.recipe);
  for (const Rule& rule : rules()) {
    const double share = s.share(rule.part);
    for (const Words& change : rule.changes(s)) {
      const double ratio = 1 / (1 - std::min(0.99, share * std::clamp(rule.saved(s, change), 0.0, 1.0)));
      if (ratio <= least || !works_here(s, change)) continue;
      all.push_back({.rule = &rule,
                     .change = change,
                     .exactness = exactness_of(rule, s),
                     .ratio = ratio,
                     .stands_out = s.limit.noise_pct && 100 * (ratio - 1) > *s.limit.noise_pct,
                     .from = number_before(recipe, change),
                     .evidence = fmt::format("{} is {:.0f} % of the time", rule.part, 100 * share)});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Proposal& a, const Proposal& b) { return a.ratio > b.ratio; });
  return all;
}

std::vector<Proposal> best_of_each_rule(const std::vector<Proposal>& proposals) {
  std::vector<Proposal> best;
  for (const Proposal& each : proposals)
    if (std::none_of(best.begin(), best.end(), [&](const Proposal& other) { return other.rule == each.rule; }))
      best.push_back(each);
  return best;
}

}  // namespace trainopt
