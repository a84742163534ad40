#include "report/diagnosis.h"

#include "base/counted.h"
#include "report/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

/// Below this share of the time a part is not worth a reader's attention.
constexpr double kNoticeable = 5;     // %
constexpr double kIdleGpu = 80;       // % of the time with a kernel running; below it the GPU waits
constexpr double kLittleMemory = 50;  // % of the device's memory at the peak
constexpr double kBusyMachine = 10;   // % of the cores taken by other programs

std::optional<double> number(const Json& json, std::string_view path) {
  const Json& value = at(json, path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

bool on_gpu(const RunFolder& run) { return number(run.summary, "gpu_util_pct").has_value(); }

/// For a shell.
std::string quoted(const std::string& text) {
  if (text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%") == text.npos)
    return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// "trainopt compare runs/job/recipe.yaml REST", started as the run was.
std::string command(const RunFolder& run, std::string_view name, std::string_view rest) {
  const std::string start = run.ranks() > 1 && name != "plan" && name != "data bench"
                                ? fmt::format("trainopt launch -n {} -- {}", run.ranks(), name)
                                : fmt::format("trainopt {}", name);
  return fmt::format("{} {}{}{}", start, quoted((run.path / "recipe.yaml").string()), rest.empty() ? "" : " ", rest);
}

/// What a step waits for the other ranks, and its own time, in the recorded steps.
struct ExposedShare {
  double exposed_ms = 0, step_ms = 0;
  double pct() const { return step_ms > 0 ? 100 * exposed_ms / step_ms : 0; }
};
ExposedShare exposed_share(const RunFolder& run) {
  return {run.steps.measured_mean(Metric::comm_exposed_ms).value_or(0),
          run.steps.measured_mean(Metric::step_ms).value_or(0)};
}

void advise_data(const RunFolder& run, std::vector<Advice>& all) {
  const auto wait = number(run.summary, "data_wait_pct");
  if (!wait || *wait < kNoticeable) return;
  const auto workers = static_cast<int64_t>(number(run.recipe, "data.num_workers").value_or(0));
  const std::string evidence = fmt::format("the step waits for data {} of the time", percent_text(*wait));
  all.push_back({workers == 0 ? "Load with threads: data.num_workers is 0"
                              : fmt::format("Load faster: more than {}, or less work per sample",
                                            counted(workers, "loader thread")),
                 evidence,
                 command(run, "compare",
                         fmt::format("--each data.num_workers={},{},{}", workers, std::max<int64_t>(1, 2 * workers),
                                     std::max<int64_t>(2, 4 * workers)))});
  all.push_back({"Find the loader's slow stage", evidence, command(run, "data bench", "")});
}

void advise_exchange(const RunFolder& run, std::vector<Advice>& all) {
  const ExposedShare exposed = exposed_share(run);
  if (exposed.pct() < kNoticeable) return;
  all.push_back(
      {"Communicate less often, or beside the backward pass: accumulation, parallel.overlap_comm, "
       "parallel.bucket_cap_mb, parallel.gradient_dtype",
       fmt::format("a step waits {} of {} for the other ranks", ms_text(exposed.exposed_ms), ms_text(exposed.step_ms)),
       command(run, "compare", "--each parallel.bucket_cap_mb=10,25,100")});
}

void advise_gpu(const RunFolder& run, std::vector<Advice>& all) {
  if (!on_gpu(run)) return;
  const double busy = *number(run.summary, "gpu_util_pct");
  if (busy < kIdleGpu && number(run.summary, "data_wait_pct").value_or(0) < kNoticeable)
    all.push_back({"Launch less often: a larger batch, or switches that fuse operations or record the step",
                   fmt::format("a kernel runs only {} of the time, and data is ready", percent_text(busy)),
                   command(run, "profile", "")});
  if (const auto memory = number(run.summary, "memory_peak_pct"); memory && *memory < kLittleMemory)
    all.push_back(
        {"Try a larger batch", fmt::format("the peak is {} of the GPU's memory", percent_text(*memory)),
         command(run, "plan",
                 fmt::format("data.batch_size={:.0f}", 2 * number(run.recipe, "data.batch_size").value_or(1)))});
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
    changes += (changes.empty() ? "" : " ") + quoted(change);
  }
  if (!names.empty())
    all.push_back({"Measure what is off: " + names, "these would have an effect on this machine",
                   command(run, "ablate", changes)});
}

void advise_noise(const RunFolder& run, std::vector<Advice>& all) {
  if (const double other = run.steps.measured_mean(Metric::other_cpu_pct).value_or(0); other > kBusyMachine)
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
  std::vector<Limit::Part> parts{
      {"waiting for data", wait}, {"forward", forward}, {"backward", backward}, {"update", update}};
  parts.push_back({"other", std::max(0.0, 100 - wait - compute - update)});
  for (auto& part : parts) part.share_pct = std::isfinite(part.share_pct) ? std::clamp(part.share_pct, 0.0, 100.0) : 0;
  const std::string time = fmt::format("a step takes {}", ms_text(*step));
  const auto limit = [&](const char* sentence, double share_pct, const std::string& evidence = "") {
    return Limit{sentence, evidence + time, std::min(100.0, share_pct), parts};
  };
  const auto busy = number(run.summary, "gpu_util_pct");
  const bool idle = busy && *busy < kIdleGpu;
  if (wait >= kNoticeable && (wait >= compute || idle)) return limit("The loader: the step waits for data.", wait);
  if (const ExposedShare exposed = exposed_share(run); exposed.pct() >= kNoticeable && 2 * exposed.pct() >= compute)
    return limit(
        "Communication: the step waits for the other ranks.", exposed.pct(),
        fmt::format("a step waits {} of {} for them, ", ms_text(exposed.exposed_ms), ms_text(exposed.step_ms)));
  if (idle)
    return limit("The host: it does not keep the GPU busy, though data is ready.", 100 - *busy,
                 fmt::format("a kernel runs {} of the time; ", percent_text(*busy)));
  if (update > compute) return limit("The update of the weights.", update);
  if (compute <= 0) return std::nullopt;
  return limit("Computing: the forward and backward passes.", compute);
}

std::vector<Advice> advice_for(const RunFolder& run) {
  std::vector<Advice> all;
  const Json& status = at(run.summary, "status");
  if (!run.ended() || status == "failed" || run.steps.steps() == 0) return all;
  advise_data(run, all);
  advise_exchange(run, all);
  advise_gpu(run, all);
  advise_switches(run, all);
  advise_noise(run, all);
  return all;
}

}  // namespace trainopt::report
