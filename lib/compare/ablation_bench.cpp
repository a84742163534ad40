#include "compare/ablation_bench.h"

#include "base/files.h"
#include "base/philox.h"
#include "compare/comparison_json.h"
#include "compare/comparison_text.h"
#include "compare/make_arm.h"
#include "recipe/recipe_io.h"

namespace trainopt {

AblationBench::AblationBench(const AblationRequest& request, SwitchSet all, const Machine& machine,
                             const Observer& observer)
    : request_(request), all_(std::move(all)), machine_(machine), observer_(observer) {
  quiet_.stop = observer.stop;
}

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
  } catch (const UserError&) {  // named recovery: the caller looks for a set that can be
    return false;
  }
}

double AblationBench::seconds_left() const { return -seconds_since(request_.until); }

std::string AblationBench::name_of(const SwitchSet& on) const {
  if (on.empty()) return "plain";
  return on == all_ ? "all" : fmt::format("{}", fmt::join(on, "+"));
}

ArmSpec AblationBench::spec(const SwitchSet& on, std::optional<Ceiling> without) {
  return {.recipe = recipe(on),
          .folder = request_.folder / fmt::format("arm-{}", ++arms_),
          .without = without,
          .batch_seed = {}};
}

Baseline AblationBench::baseline_of(const SwitchSet& on, const SwitchSet& b, Clock::time_point until) {
  const ArmSpec arm = spec(on, {});
  const Yardstick held_against = yardstick(arm.recipe, recipe(b));
  CompareOptions options = request_.options;
  if (noise_) options.noise_blocks = 0;  // the first twin has measured it
  std::function<std::shared_ptr<Arm>()> make_twin;
  if (on.empty() && !twins_.contains(held_against))
    make_twin = [&] { return make_arm(twin_of(arm, held_against), machine_, ArmHost::own_process); };
  Baseline baseline = make_baseline(warm_up(name_of(on), make_arm(arm, machine_, ArmHost::own_process), options),
                                    make_twin, options, until, quiet_, held_against);
  if (!on.empty()) return baseline;
  if (make_twin) twins_[held_against] = {baseline.twin_folder, baseline.twin_first_steps};
  if (!noise_) noise_ = baseline.noise;
  baseline.twin_folder = twins_[held_against].folder;
  baseline.twin_first_steps = twins_[held_against].first_steps;
  baseline.noise = noise_;
  return baseline;
}

Cell AblationBench::measure(const SwitchSet& a, const SwitchSet& b, std::optional<Ceiling> b_without, double seconds) {
  Cell cell;
  if (seconds <= 0 || observer_.stopped()) {
    cell.gain.reason = observer_.stopped() ? kStopped : kNoTimeLeft;
    return cell;
  }
  const std::string name =
      b_without ? fmt::format("{} without the cost of {}", name_of(b), word_of(*b_without)) : name_of(b);
  try {
    const auto until = after(seconds);
    const Baseline baseline = baseline_of(a, b, after(seconds / 4));
    const ArmSpec arm = spec(b, b_without);
    CompareOptions options = request_.options;
    options.seed =
        mix_key(options.seed, static_cast<uint64_t>(arms_));  // cells that toss the same coins would err together
    cell.comparison = compare(baseline, warm_up(name, make_arm(arm, machine_, ArmHost::own_process), options), options,
                              until, quiet_);
    remove_first_steps(baseline.a.arm->folder());
    remove_first_steps(arm.folder);
    write_file(arm.folder / "result.json", to_json(*cell.comparison, true).dump(1) + "\n");
    cell.gain = {.ratio = cell.comparison->ratio,
                 .interval = cell.comparison->interval,
                 .verdict = cell.comparison->verdict,
                 .blocks = static_cast<int64_t>(cell.comparison->blocks.size()),
                 .reason = {}};
    observer_.report(fmt::format("{} against {}: {}", name, name_of(a),
                                 percent_faster(cell.comparison->ratio, cell.comparison->interval)));
  } catch (const UserError& error) {  // named recovery: a cell that fails is a row with its reason
    cell.gain.reason = error.what();
    observer_.report(fmt::format("{} against {}: {}", name, name_of(a), error.what()));
  }
  return cell;
}

}  // namespace trainopt
