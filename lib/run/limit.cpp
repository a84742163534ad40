#include "run/limit.h"

#include "base/units.h"
#include "metrics/format.h"
#include "statistics/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trainopt {
namespace {

/// A part of the time, what to say of it, and whether a training could do without it.
struct Part : TimePart {
  std::string what, evidence;
  bool avoidable = true;
};

/// "decoding takes 71 % of a sample's 0.812 ms".
std::string slow_stage(const LoaderShares& shares) {
  const std::array stages{std::pair{"reading", shares.read_pct}, std::pair{"decoding", shares.decode_pct},
                          std::pair{"transforming", shares.transform_pct}, std::pair{"other work", shares.other_pct}};
  const auto slowest =
      *std::max_element(stages.begin(), stages.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} takes {:.0f} % of a sample's {}", slowest.first, slowest.second,
                     human_milliseconds(shares.sample_us / 1e3));
}

class Parts {
 public:
  explicit Parts(const RunTimes& times) : times_(times), mean_ms_(times.step.mean_ms) {
    const double steps_s = mean_ms_ / 1e3 * static_cast<double>(times.steps);
    wall_s_ = steps_s + times.evaluation_s + times.checkpoint_s;
    of_steps_ = wall_s_ > 0 ? steps_s / wall_s_ : 0;
    add_waits();
    add_between();
    add_computing();
  }

  std::vector<Part> take() { return std::move(parts_); }
  double update_pct() const { return update_pct_; }

 private:
  void add(const std::string& name, double share_pct, const std::string& what, const std::string& evidence = "",
           bool avoidable = true) {
    if (share_pct <= 0) return;
    parts_.push_back({{name, std::min(100.0, share_pct)}, what, evidence, avoidable});
  }
  /// A part of a step as a share of all time.
  double of_step(const std::optional<double>& pct) const { return pct.value_or(0) * of_steps_; }
  double of_step_ms(double milliseconds) const { return mean_ms_ > 0 ? 100 * milliseconds / mean_ms_ * of_steps_ : 0; }

  void add_waits() {
    const StepTimes& step = times_.step;
    const std::string how = times_.loader_threads == 0 ? "the training thread loads the data itself"
                                                       : counted(times_.loader_threads, "loader thread");
    if (waits_for_storage())
      add("storage", of_step(step.data_wait_pct), "waiting for data", how + "; " + times_.storage->speed_text());
    else
      add("loader", of_step(step.data_wait_pct), "waiting for data",
          times_.loader && times_.loader->sample_us > 0 ? how + "; " + slow_stage(*times_.loader) : how);
    if (!times_.copies_ahead) add("copy", of_step(step.copy_pct), "copying batches to the device before the step");
    add_exchange();
    add("records", wall_s_ > 0 ? 100 * times_.records_s / wall_s_ : 0, "writing records");
  }

  /// Whether the loader mostly waits for bytes that come from afar.
  bool waits_for_storage() const {
    const auto& storage = times_.storage;
    if (!storage || storage->speed.reads == 0 || storage->hit_pct().value_or(0) > 90) return false;
    return times_.loader && times_.loader->read_pct > 50;
  }

  void add_exchange() {
    double exposed = times_.step.exposed_pct.value_or(0);
    if (const auto& straggler = times_.step.straggler; straggler && mean_ms_ > 0) {
      const double waited = std::min(exposed, 100 * (straggler->busy_ms - straggler->others_ms) / mean_ms_);
      if (2 * waited > exposed) {
        add("straggler", of_step(waited), fmt::format("waiting for rank {}", straggler->rank), straggler->text());
        exposed -= waited;
      }
    }
    add("exchange", of_step(exposed), "waiting for exchanges between ranks");
  }

  void add_between() {
    if (wall_s_ <= 0) return;
    add("evaluation", 100 * times_.evaluation_s / wall_s_, "evaluating");
    add("checkpoints", 100 * times_.checkpoint_s / wall_s_, "saving checkpoints");
  }

  void add_computing() {
    const StepTimes& step = times_.step;
    double passes = of_step_ms(step.forward_ms.value_or(0) + step.backward_ms.value_or(0)) - of_step(step.exposed_pct);
    if (!step.forward_ms) passes = of_step(100 - step.data_wait_pct.value_or(0) - step.exposed_pct.value_or(0));
    double update = update_pct_ = of_step_ms(step.update_ms.value_or(0));
    if (const double launches = launches_pct(); launches > 0) {
      const double both = passes + update;
      const double share = std::min(launches, both);
      add("launches", share, "starting operations",
          step.gpu_busy_pct ? fmt::format("a kernel runs {:.0f} % of the time", *step.gpu_busy_pct)
                            : fmt::format("{} in a step", counted(times_.operations.value_or(0), "operation")),
          step.gpu_busy_pct || 2 * share > both);
      if (both > 0) {
        passes -= share * passes / both;
        update -= share * update / both;
      }
    }
    const std::string mfu =
        step.mfu_pct ? fmt::format("multiplying at {:.0f} % of the measured peak", *step.mfu_pct) : "";
    const bool memory = times_.memory_bound_pct.value_or(0) > 50;
    add(memory ? "memory bandwidth" : "compute", passes,
        memory ? "forward and backward, mostly bound by memory" : "computing forward and backward", mfu, false);
    add("update", update, "updating the weights", "", false);
  }

  /// On a GPU, the time without a kernel that nothing else explains.
  double launches_pct() const {
    const StepTimes& step = times_.step;
    if (step.gpu_busy_pct)
      return of_step(100 - *step.gpu_busy_pct - step.data_wait_pct.value_or(0) - step.exposed_pct.value_or(0));
    return times_.operations_ms ? of_step_ms(*times_.operations_ms) : 0;
  }

  const RunTimes& times_;
  double mean_ms_, wall_s_ = 0;
  double of_steps_ = 0;  ///< share of the steps in all time
  double update_pct_ = 0;
  std::vector<Part> parts_;
};

std::string text_of(const Part& part, const std::vector<Part>& parts) {
  std::string text = fmt::format("{}: {:.0f} % of the time {}", part.name, part.share_pct, part.what);
  if (!part.evidence.empty()) text += " (" + part.evidence + ")";
  const auto computing =
      std::find_if(parts.begin(), parts.end(), [](const Part& each) { return !each.avoidable && each.share_pct >= 1; });
  if (part.avoidable && computing != parts.end())
    text += fmt::format("; {} takes {:.0f} %", computing->name, computing->share_pct);
  if (part.avoidable || part.share_pct >= 50) return text;
  // What limits a run by a small share needs the other shares beside it, as the page's bar has them.
  for (const Part& other : parts)
    if (other.name != part.name && other.share_pct >= 10)
      text += fmt::format("; {} {:.0f} %", other.what, other.share_pct);
  return text;
}

}  // namespace

Limit find_limit(const RunTimes& times) {
  Parts found_parts(times);
  std::vector<Part> parts = found_parts.take();
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.share_pct > b.share_pct; });
  Limit limit{.name = "nothing", .noise_pct = times.step.noise_pct, .update_pct = found_parts.update_pct()};
  for (const Part& part : parts) limit.parts.push_back(part);
  if (!times.step.noise_pct) {
    limit.text = "nothing stands out: too few steps were measured to tell a cost from noise";
    return limit;
  }
  const double least = std::max(*times.step.noise_pct, 100 * SequentialOptions().min_effect);
  const auto stands_out = [&](const Part& part) { return part.share_pct > least; };
  auto found =
      std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return part.avoidable && stands_out(part); });
  if (found == parts.end())
    found =
        std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return !part.avoidable && stands_out(part); });
  if (found == parts.end()) {
    limit.text = fmt::format("nothing stands out from the noise of {:.1f} %", *times.step.noise_pct);
    return limit;
  }
  limit.name = found->name;
  limit.share_pct = found->share_pct;
  limit.what = found->what;
  limit.evidence = found->evidence;
  limit.text = text_of(*found, parts);
  return limit;
}

Json to_json(const Limit& limit) {
  const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  Json json = {{"name", limit.name},
               {"text", limit.text},
               {"what", limit.what},
               {"evidence", limit.evidence},
               {"share_pct", number(limit.share_pct)},
               {"noise_pct", number(limit.noise_pct)},
               {"parts", Json::array()}};
  for (const TimePart& part : limit.parts)
    json["parts"].push_back({{"name", part.name}, {"share_pct", part.share_pct}});
  return json;
}

}  // namespace trainopt
