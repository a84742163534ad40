#include "compare/ablation_bench.h"

#include "base/counted.h"
#include "base/files.h"
#include "base/philox.h"
#include "compare/comparison_json.h"
#include "compare/comparison_text.h"
#include "compare/make_arm.h"
#include "compare/process_pairs.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"

#include <cmath>

namespace trainopt {

bool is_default(const AblationRequest& request, const Recipe& recipe, const std::string& name) {
  Sources without = request.sources;
  without.overrides.push_back(switched_off(name));
  try {
    return recipe_yaml(load_recipe(without, request.ranks).recipe) == recipe_yaml(recipe);
  } catch (const UserError&) {  // named recovery: another switch needs this one, so it is on
    return false;
  }
}

AblationBench::AblationBench(const AblationRequest& request, SwitchSet all, ArmFactory& factory,
                             const Observer& observer)
    : request_(request), all_(std::move(all)), factory_(factory), observer_(observer) {
  quiet_.stop = observer.stop;
}

Recipe AblationBench::recipe(const SwitchSet& on) const {
  Sources sources = request_.sources;
  for (const auto& name : all_)
    if (!on.contains(name)) sources.overrides.push_back(switched_off(name));
  return load_recipe(sources, request_.ranks).recipe;
}

bool AblationBench::possible(const SwitchSet& on) const {
  try {
    factory_.plan({.recipe = recipe(on), .folder = {}, .without = {}, .batch_seed = {}});
    return true;
  } catch (const UserError&) {  // named recovery: the caller searches for a possible set
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

const Baseline& AblationBench::twin_of_plain(const ArmSpec& plain, Yardstick kind) {
  Baseline& of_twin = twins_[kind];
  if (of_twin.twin_folder.empty()) of_twin = make_twin_baseline(plain, kind, factory_, request_.options);
  return of_twin;
}

Comparison AblationBench::compare_cell(const ArmSpec& a, const ArmSpec& b, const std::string& name_a,
                                       const std::string& name_b, bool a_is_plain, double seconds) {
  const auto until = after(seconds);
  CompareOptions options = request_.options;
  // With the same coin tosses, the errors of the cells would be correlated.
  options.seed = mix_key(options.seed, static_cast<uint64_t>(arms_));
  std::optional<Numerics> numerics;
  SetOptions pairs{.make = {fresh_arms(name_a, a, factory_, options), fresh_arms(name_b, b, factory_, options)},
                   .first_set = {},
                   .min_sets = 2,
                   .may_decide = false};
  if (a_is_plain) {
    const Baseline& twin = twin_of_plain(a, yardstick(a.recipe, b.recipe));
    pairs.first_set = [&](std::span<const WarmArm> pair) { numerics = numbers_of_pair(twin, pair[0], pair[1]); };
  }
  Comparison comparison = compare_processes(pairs, options, until, quiet_);
  comparison.numerics = std::move(numerics);
  return comparison;
}

Cell AblationBench::measure(const SwitchSet& a, const SwitchSet& b, std::optional<Ceiling> b_without, double seconds) {
  Cell cell;
  if (seconds <= 0 || observer_.stopped() || !factory_.is_sound()) {
    cell.gain.reason = observer_.stopped() ? kStopped : factory_.is_sound() ? kNoTimeLeft : kRankLost;
    return cell;
  }
  const std::string name_a = name_of(a),
                    name_b = b_without ? fmt::format("{} without the cost of {}", name_of(b), word_of(*b_without))
                                       : name_of(b);
  try {
    const ArmSpec arm_a = spec(a, {}), arm_b = spec(b, b_without);
    cell.comparison = compare_cell(arm_a, arm_b, name_a, name_b, a.empty(), seconds);
    remove_first_steps(arm_a.folder);
    remove_first_steps(arm_b.folder);
    write_file(arm_b.folder / "result.json", json_text(to_json(*cell.comparison, true), 1) + "\n");
    cell.gain.ratio = cell.comparison->ratio;
    cell.gain.blocks = static_cast<int64_t>(cell.comparison->blocks.size());
    for (const Measurement& pair : measurements_of(cell.comparison->blocks, true))
      cell.gain.pairs.push_back(std::log(pair.seconds_per_sample.a / pair.seconds_per_sample.b));
    observer_.report(fmt::format("{} against {}: {} in {}", name_b, name_a, percent_faster(cell.comparison->ratio),
                                 counted(cell.comparison->pairs(), "pair")));
  } catch (const UserError& error) {  // named recovery: a cell that fails becomes a row with its reason
    cell.gain.reason = error.what();
    observer_.report(fmt::format("{} against {}: {}", name_b, name_a, error.what()));
  }
  return cell;
}

}  // namespace trainopt
