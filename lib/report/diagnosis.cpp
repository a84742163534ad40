#include "report/diagnosis.h"

#include "report/number_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt::report {
namespace {

/// Below this share of the time a part is not worth a reader's attention.
constexpr double kNoticeable = 5;                       // %
constexpr double kIdleGpu = 80;                         // % of the time with a kernel running; below it the GPU waits
constexpr double kLittleMemory = 50, kMuchMemory = 92;  // % of the device's memory at the peak
constexpr double kBusyMachine = 10;                     // % of the cores taken by other programs

std::optional<double> number(const Json& json, std::string_view path) {
  const Json& value = at(json, path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

bool on_gpu(const RunFolder& run) { return number(run.summary, "gpu_util_pct").has_value(); }

double mean_of(const Columns& columns) {
  double sum = 0;
  int64_t count = 0;
  for (const Column& column : columns.columns()) {
    sum += column.sum;
    count += column.count;
  }
  return count ? sum / static_cast<double>(count) : 0;
}

std::string recipe_of(const RunFolder& run) { return (run.path / "recipe.yaml").string(); }

void advise_data(const RunFolder& run, std::vector<Advice>& all) {
  const auto wait = number(run.summary, "data_wait_pct");
  if (!wait || *wait < kNoticeable) return;
  const auto workers = number(run.recipe, "data.num_workers").value_or(0);
  all.push_back(
      {workers == 0
           ? "Load with threads: data.num_workers is 0"
           : fmt::format("Make loading faster: more than {:.0f} loader threads, or less work per sample", workers),
       fmt::format("the step waits for data {} of the time", percent_text(*wait)),
       fmt::format("trainopt compare {} --each data.num_workers={:.0f},{:.0f},{:.0f}", recipe_of(run), workers,
                   std::max(1.0, 2 * workers), std::max(2.0, 4 * workers))});
  all.push_back({"Find the loader's slow stage", "the same", fmt::format("trainopt data bench {}", recipe_of(run))});
}

void advise_exchange(const RunFolder& run, std::vector<Advice>& all) {
  const double exposed = mean_of(run.steps.of(Metric::comm_exposed_ms)), step = mean_of(run.steps.of(Metric::step_ms));
  if (step <= 0 || 100 * exposed / step < kNoticeable) return;
  all.push_back(
      {"Communicate less often, or beside the backward pass: accumulation, parallel.overlap_comm, "
       "parallel.bucket_cap_mb, parallel.gradient_dtype",
       fmt::format("a step waits {} of {} for communication", ms_text(exposed), ms_text(step)),
       fmt::format("trainopt compare {} --each parallel.bucket_cap_mb=10,25,100", recipe_of(run))});
}

void advise_gpu(const RunFolder& run, std::vector<Advice>& all) {
  if (!on_gpu(run)) return;
  const double busy = *number(run.summary, "gpu_util_pct");
  if (busy < kIdleGpu && number(run.summary, "data_wait_pct").value_or(0) < kNoticeable)
    all.push_back({"Launch less often: a larger batch, or switches that fuse operations or record the step",
                   fmt::format("a kernel runs only {} of the time, and data is ready", percent_text(busy)),
                   fmt::format("trainopt profile {}", recipe_of(run))});
  if (const auto memory = number(run.summary, "memory_peak_pct"); memory && *memory < kLittleMemory)
    all.push_back({"Try a larger batch", fmt::format("the peak is {} of the GPU's memory", percent_text(*memory)),
                   fmt::format("trainopt plan {} data.batch_size=…", recipe_of(run))});
  if (const auto retries = number(run.summary, "alloc_retries"); retries && *retries > 0)
    all.push_back({"Leave the allocator room: a smaller batch, or other settings of it",
                   fmt::format("{} allocations first had to empty the allocator's cache", count_text(*retries)), ""});
}

/// Switches that the recipe leaves off and that this machine can use. Which of them pay, only a measurement says.
void advise_switches(const RunFolder& run, std::vector<Advice>& all) {
  std::string names, changes;
  for (const Json& unused : at(run.plan, "unused_switches")) {
    const std::string change = value_text(at(unused, "change"));
    const size_t begin = change.rfind('.', change.find('=')) + 1;
    names += (names.empty() ? "" : ", ") + change.substr(begin, change.find('=') - begin);
    changes += " " + change;
  }
  if (!names.empty())
    all.push_back({"Measure what is off: " + names, "these would have an effect on this machine",
                   fmt::format("trainopt ablate {}{}", recipe_of(run), changes)});
}

void advise_noise(const RunFolder& run, std::vector<Advice>& all) {
  if (const double other = mean_of(run.steps.of(Metric::other_cpu_pct)); other > kBusyMachine)
    all.push_back(
        {"Measure on a quiet machine", fmt::format("other programs used {} of the cores", percent_text(other)), ""});
  if (run.steps.throttled_steps() > 0)
    all.push_back({"Look at cooling and power limits",
                   fmt::format("the GPU's clock was throttled in {} steps",
                               count_text(static_cast<double>(run.steps.throttled_steps()))),
                   ""});
}

}  // namespace

std::optional<Limit> limit_of(const RunFolder& run) {
  const auto step = number(run.summary, "step_ms.mean");
  if (!step || *step <= 0) return std::nullopt;
  const auto share = [&](const char* phase) {
    return 100 * number(run.summary, std::string("phases_ms.") + phase).value_or(0) / *step;
  };
  const double wait = number(run.summary, "data_wait_pct").value_or(0);
  const double forward = share("forward"), backward = share("backward"), update = share("update");
  const double compute = forward + backward;
  const std::vector<Limit::Part> parts{
      {"waiting for data", wait}, {"forward", forward}, {"backward", backward}, {"update", update}};
  std::string split;
  for (const auto& part : parts)
    split += fmt::format("{}{} {}", split.empty() ? "" : ", ", part.name, percent_text(part.share_pct));
  split += fmt::format(" of a step of {}", ms_text(*step));
  const auto limit = [&](const char* sentence, double share_pct) {
    return Limit{sentence, split, std::min(100.0, share_pct), parts};
  };
  if (wait >= kNoticeable && wait >= compute) return limit("The loader: the step waits for data.", wait);
  const double exposed = 100 * mean_of(run.steps.of(Metric::comm_exposed_ms)) / *step;
  if (exposed >= kNoticeable && 2 * exposed >= compute)
    return limit("Communication: the step waits for the other ranks.", exposed);
  if (const auto busy = number(run.summary, "gpu_util_pct"); busy && *busy < kIdleGpu) {
    Limit idle = limit("The host: it does not keep the GPU busy, though data is ready.", 100 - *busy);
    idle.evidence = fmt::format("a kernel runs {} of the time; {}", percent_text(*busy), split);
    return idle;
  }
  if (update > compute) return limit("The update of the weights.", update);
  if (compute <= 0) return std::nullopt;
  return limit("Computing: the forward and backward passes.", compute);
}

std::vector<Advice> advice_for(const RunFolder& run) {
  std::vector<Advice> all;
  if (!run.ended() || run.steps.steps() == 0) return all;
  advise_data(run, all);
  advise_exchange(run, all);
  advise_gpu(run, all);
  advise_switches(run, all);
  advise_noise(run, all);
  return all;
}

}  // namespace trainopt::report
