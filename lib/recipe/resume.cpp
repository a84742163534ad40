#include "recipe/resume.h"

#include "recipe/make_plan.h"
#include "recipe/plain_plan.h"
#include "recipe/recipe_io.h"

#include <algorithm>
#include <map>

namespace trainopt {
namespace {

// A section stands for all its keys. data.path may change: opening the data checks that it is the same.
const std::vector<std::string> kFixed{"model",           "seed",
                                      "optimizer",       "average",
                                      "data.dataset",    "data.size",
                                      "data.image_size", "data.shuffle",
                                      "data.drop_last",  "train.short_batch",
                                      "data.decode",     "data.transforms",
                                      "data.token_bits", "data.parquet",
                                      "data.partitions", "data.shuffle_window"};
const std::vector<std::string> kNoted{"optimizations",
                                      "optimizer.lr",
                                      "optimizer.adamw_lr",
                                      "scheduler",
                                      "train.label_smoothing",
                                      "train.max_grad_norm",
                                      "train.clip_value",
                                      "deterministic",
                                      "device",
                                      "num_threads",
                                      "data.padding",
                                      "parallel.sync_batch_norm",
                                      "parallel.gradient_dtype",
                                      "parallel.sharding_strategy",
                                      "parallel.pipeline"};

bool among(const std::string& key, const std::vector<std::string>& keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const std::string& one) { return key == one || key.starts_with(one + "."); });
}

/// Keys that may change without a note: the initial weights, and switches whose training is bit-identical.
std::vector<std::string> free_keys() {
  std::vector<std::string> keys{"model.weights", "model.replace_head"};
  for (const CatalogueEntry& entry : catalogue())
    if (entry.info.exactness == Exactness::same_bits && entry.info.in_every_recipe) keys.push_back(entry.key);
  return keys;
}

struct Change {
  std::string before = "not set", now = "not set";
};

/// Collects every key by its full name, with its value.
void flatten(const Json& value, const std::string& path, std::map<std::string, std::string>& keys) {
  if (!value.is_object()) {
    keys[path] = json_text(value);
    return;
  }
  for (const auto& [key, entry] : value.items()) flatten(entry, path.empty() ? key : path + "." + key, keys);
}

std::map<std::string, Change> changes(const Recipe& stored, const Recipe& now) {
  std::map<std::string, std::string> before, after;
  flatten(recipe_json(stored), "", before);
  flatten(recipe_json(now), "", after);
  std::map<std::string, Change> all;
  for (const auto& [key, value] : before) all[key].before = value;
  for (const auto& [key, value] : after) all[key].now = value;
  std::erase_if(all, [](const auto& entry) { return entry.second.before == entry.second.now; });
  return all;
}

int64_t global_batch(const Recipe& recipe, int64_t ranks) {
  ranks = ranks_that_share_data(recipe, ranks);
  const auto found = accumulation(recipe, ranks);
  return std::holds_alternative<int64_t>(found) ? std::get<int64_t>(found) * ranks * recipe.data.batch_size : 0;
}

}  // namespace

std::vector<std::string> check_resume(const Recipe& stored, const Recipe& now, int64_t stored_ranks, int64_t ranks) {
  std::string refused;
  std::vector<std::string> notes;
  const auto refuse = [&](const std::string& key, const Change& change) {
    refused +=
        fmt::format("{}{}: {} in the checkpoint, {} now", refused.empty() ? "" : "; ", key, change.before, change.now);
  };
  const auto free = free_keys();
  for (const auto& [key, change] : changes(stored, now)) {
    if (among(key, free)) continue;
    if (among(key, kNoted))
      notes.push_back(fmt::format("differs from the checkpoint, so numbers may change from now on: {}: {}, was {}", key,
                                  change.now, change.before));
    else if (among(key, kFixed))
      refuse(key, change);
  }
  const int64_t before = global_batch(stored, stored_ranks), after = global_batch(now, ranks);
  if (before != after)
    refuse("the global batch (ranks × train.gradient_accumulation_steps × data.batch_size)",
           {std::to_string(before), std::to_string(after)});
  else if (stored_ranks != ranks)
    notes.push_back(fmt::format(
        "the same global batch on a different number of ranks ({}, was {}): sums round differently from now on", ranks,
        stored_ranks));
  else if (stored.data.batch_size != now.data.batch_size)
    notes.push_back(fmt::format(
        "the same global batch, split differently (data.batch_size {}, was {}): sums round differently from now on",
        now.data.batch_size, stored.data.batch_size));
  if (!refused.empty())
    throw UserError("a resumed run must train the same thing; restore these values or start a new run: " + refused,
                    ExitCode::checkpoint);
  return notes;
}

}  // namespace trainopt
