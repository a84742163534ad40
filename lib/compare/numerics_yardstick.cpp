#include "compare/numerics_yardstick.h"

#include "config/load.h"
#include "data/transform_form.h"
#include "recipe/make_plan.h"

#include <algorithm>

namespace trainopt {
namespace {

// Options that determine the samples of a step, their order, random transforms, division into micro-batches, and
// dropout. Options that only affect loading speed are not here. Nor are options that change the model or the update:
// those differences are intended and should be reported.
constexpr std::array kDrawsFollowFrom = {"seed",
                                         "model.dropout",
                                         "data.dataset",
                                         "data.path",
                                         "data.size",
                                         "data.image_size",
                                         "data.batch_size",
                                         "data.global_batch_size",
                                         "data.shuffle",
                                         "data.drop_last",
                                         "data.decode",
                                         "data.transforms",
                                         "data.token_bits",
                                         "data.parquet",
                                         "data.partitions",
                                         "data.shuffle_window",
                                         "data.padding",
                                         "train.gradient_accumulation_steps"};

const Json& at_key(const Json& recipe, std::string key) {
  std::replace(key.begin(), key.end(), '.', '/');
  return recipe.at(Json::json_pointer("/" + key));
}

}  // namespace

Yardstick yardstick(const Recipe& a, const Recipe& b) {
  std::vector<std::string> keys(kDrawsFollowFrom.begin(), kDrawsFollowFrom.end());
  for (const CatalogueEntry& entry : catalogue())
    if (entry.info.other_draws) keys.push_back(entry.key);
  const Json of_a = to_json(a), of_b = to_json(b);
  const bool other_draws =
      std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return at_key(of_a, key) != at_key(of_b, key); });
  return other_draws ? Yardstick::reseeded : Yardstick::perturbed;
}

}  // namespace trainopt
