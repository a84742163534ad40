// Compares the numbers of a job with those of correct changes, and plants faults in them, for bench_numbers.py.
//
//   numbers_rates RECIPE FOLDER SEED CHANGE...
//     CHANGE: an override such as optimizations.amp=true. Prints one JSON object: for each change whether its numbers
//     agree, and in how many first gradients, scaled by 1.1 and by 0.9 one at a time, the fault is found;
//     "largest": of gradients, updates and buffers the distance nearest to its limit, as a share of it
#include "compare/arms/local_arm.h"
#include "compare/arms/make_arm.h"
#include "compare/baseline.h"
#include "device/process.h"
#include "model/weights_file.h"
#include "recipe/recipe_io.h"

#include <cmath>
#include <cstdio>

using namespace trainopt;

namespace {

/// The largest distance of a tensor, as a share of its tolerance.
double share_of_limit(const TensorAgreement& tensors) {
  return std::max(std::sqrt(tensors.direction.value / tensors.direction.tolerance),
                  tensors.norm.value / tensors.norm.tolerance);
}

Json planted(const FirstSteps& a, const FirstSteps& b, std::span<const FirstSteps> twins) {
  TwinPairs of_twins;
  for (const FirstSteps& twin : twins) of_twins.push_back(pair_gradients(a.folder, twin.folder).value());
  std::vector<TensorPair> pairs = pair_gradients(a.folder, b.folder).value();
  int64_t faults = 0, found = 0;
  for (TensorPair& pair : pairs)
    for (const double by : {1.1, 0.9}) {
      if (pair.aa == 0) continue;  // a head that begins with zeros has the only gradient of the first step
      ++faults;
      const TensorPair correct = pair;
      pair.bb *= by * by;
      pair.ab *= by;
      const TensorAgreement seen = judge_tensors(pairs, of_twins);
      found += seen.beyond > 0 && seen.worst == pair.name;
      pair = correct;
    }
  return {{"faults", faults}, {"found", found}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::filesystem::path folder = argv[2];
  const auto spec_of = [&](const std::string& change, const std::string& name) {
    Sources sources;
    sources.files.emplace_back(argv[1]);
    sources.overrides = {fmt::format("seed={}", argv[3])};
    if (!change.empty()) sources.overrides.push_back(change);
    return ArmSpec{.recipe = load_recipe(sources, 1).recipe, .folder = folder / name, .batch_seed = {}};
  };
  const Machine machine = detect_machine();
  const ArmSpec job = spec_of("", "a");
  apply(arm_plan(job, machine).process);
  const auto train = [&](const ArmSpec& spec) {
    return LocalArm(arm_plan(spec, machine), spec.folder).turn(CompareOptions().warmup_steps);
  };
  const Turn of_a = train(job);
  std::vector<Turn> turns;
  std::vector<ArmSpec> specs;
  for (int64_t number = 0; number < CompareOptions().twins; ++number) {
    specs.push_back(twin_of(job, Yardstick::perturbed, number));
    turns.push_back(train(specs.back()));
  }
  const FirstSteps a{of_a, job.folder};
  std::vector<FirstSteps> twins;
  for (size_t twin = 0; twin < turns.size(); ++twin) twins.push_back({turns[twin], specs[twin].folder});
  Json result = Json::object();
  for (int change = 4; change < argc; ++change) {
    const ArmSpec changed = spec_of(argv[change], "b");
    const Turn of_b = train(changed);
    const FirstSteps b{of_b, changed.folder};
    const Numerics numerics = compare_numbers(a, b, twins, Yardstick::perturbed);
    Json& row = result[argv[change]];
    row["agree"] = numerics.not_comparable.empty() ? Json(numerics.agree()) : Json();
    row["largest"] = {share_of_limit(numerics.gradients), share_of_limit(numerics.updates),
                      share_of_limit(numerics.buffers)};
    row["disagreements"] = numerics.disagreements();
    if (numerics.not_comparable.empty()) row.update(planted(a, b, twins));
  }
  std::printf("%s\n", json_text(result).c_str());
}
