#include "compare/ablation_bench.h"

#include "base/files.h"
#include "compare/comparison_json.h"
#include "compare/comparison_text.h"
#include "compare/make_arm.h"
#include "recipe/recipe_io.h"

namespace trainopt {

Recipe AblationBench::recipe(const SwitchSet& on) const {
  Sources sources = request_.sources;
  for (const auto& name : all_)
    if (!on.contains(name)) sources.overrides.push_back(key_of_switch(name) + "=null");
  return load_recipe(sources).recipe;
}

bool AblationBench::possible(const SwitchSet& on) const {
  try {
    arm_plan({.recipe = recipe(on), .folder = {}, .without = {}, .batch_seed = {}}, machine_);
    return true;
  } catch (const UserError&) {   // named recovery: the caller looks for a set that can be
    return false;
  }
}

double AblationBench::seconds_left() const { return -seconds_since(request_.until); }

std::string AblationBench::name_of(const SwitchSet& on) const {
  if (on.empty()) return "plain";
  return on == all_ ? "all" : fmt::format("{}", fmt::join(on, "+"));
}

ArmSpec AblationBench::spec(const SwitchSet& on, std::optional<Ceiling> without) {
  return {.recipe = recipe(on), .folder = request_.folder / fmt::format("arm-{}", ++arms_), .without = without, .batch_seed = {}};
}

void AblationBench::make_baseline_of(const SwitchSet& on) {
  if (baseline_ && baseline_set_ == on) return;
  baseline_.reset();   // its process ends before the next begins
  const ArmSpec arm = spec(on, {});
  // Tolerances and the noise floor are those of the plain job.
  std::function<std::shared_ptr<Arm>()> make_twin;
  if (on.empty()) make_twin = [&] { return make_arm(twin_of(arm), machine_, Placement::own_process); };
  Observer quiet;
  quiet.stop = observer_.stop;
  baseline_ = make_baseline(warm_up(name_of(on), make_arm(arm, machine_, Placement::own_process), request_.options), make_twin, request_.options, Clock::now() + std::chrono::minutes(1), quiet);
  baseline_set_ = on;
}

Cell AblationBench::measure(const SwitchSet& a, const SwitchSet& b, std::optional<Ceiling> b_without, double seconds) {
  Cell cell;
  if (seconds <= 0 || observer_.stopped()) {
    cell.gain.reason = observer_.stopped() ? "stopped" : kNoTimeLeft;
    return cell;
  }
  const std::string name = b_without ? fmt::format("{} without the cost of {}", name_of(b), word_of(*b_without)) : name_of(b);
  try {
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    make_baseline_of(a);
    const ArmSpec arm = spec(b, b_without);
    Observer quiet;
    quiet.stop = observer_.stop;
    cell.comparison = compare(*baseline_, warm_up(name, make_arm(arm, machine_, Placement::own_process), request_.options), request_.options, until, quiet);
    write_file(arm.folder / "result.json", to_json(*cell.comparison, true).dump(1) + "\n");
    cell.gain = {.ratio = cell.comparison->ratio, .interval = cell.comparison->interval, .verdict = cell.comparison->verdict,
                 .blocks = static_cast<int64_t>(cell.comparison->blocks.size()), .reason = {}};
    observer_.say(fmt::format("{} against {}: {}{}", name, name_of(a), percent_faster(cell.comparison->ratio),
                              cell.comparison->interval ? fmt::format(" ({})", percent_faster(*cell.comparison->interval)) : std::string()));
  } catch (const UserError& error) {   // named recovery: a cell that fails is a row with its reason
    baseline_.reset();                 // it may be the one that failed
    cell.gain.reason = error.what();
    observer_.say(fmt::format("{} against {}: {}", name, name_of(a), error.what()));
  }
  return cell;
}

}  // namespace trainopt
