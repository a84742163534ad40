#include "compare/stored_arm.h"

#include "base/error.h"
#include "base/files/files.h"
#include "compare/against.h"
#include "compare/bundle.h"
#include "compare/json_values.h"
#include "compare/output/comparison_json.h"
#include "statistics/spread.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace trainopt {
namespace {

namespace fs = std::filesystem;
using Keep = std::function<bool(const std::string& key)>;

bool is_in(const std::string& key, const std::string& section) {
  return key == section || key.starts_with(section + ".");
}
bool is_in_any(const std::string& key, std::initializer_list<const char*> sections) {
  return std::any_of(sections.begin(), sections.end(), [&](const char* one) { return is_in(key, one); });
}

/// {"data.batch_size": "8", …}.
std::map<std::string, std::string> flat(const Json& json, const Keep& keep) {
  std::map<std::string, std::string> all;
  const Json leaves = json.flatten();
  for (const auto& [pointer, value] : leaves.items()) {
    std::string key = pointer.empty() ? pointer : pointer.substr(1);
    std::replace(key.begin(), key.end(), '/', '.');
    if (keep(key)) all[key] = value.is_string() ? value.get<std::string>() : json_text(value);
  }
  return all;
}

std::vector<Difference> flat_differences(const Json& then, const Json& now, const Keep& keep) {
  if (!then.is_object() || !now.is_object()) return {};  // not stored
  const auto before = flat(then, keep);
  auto after = flat(now, keep);
  std::vector<Difference> all;
  for (const auto& [key, value] : before) {
    const auto found = after.find(key);
    if (found == after.end() || found->second != value)
      all.push_back({.what = key, .then = value, .now = found == after.end() ? "none" : found->second});
    if (found != after.end()) after.erase(found);
  }
  for (const auto& [key, value] : after) all.push_back({.what = key, .then = "none", .now = value});
  return all;
}

/// One arm's seconds per sample, over blocks.
double seconds_per_sample(std::span<const Block> blocks, bool of_a) {
  double seconds = 0, samples = 0;
  for (const Block& block : blocks) {
    seconds += block.seconds(of_a);
    samples += static_cast<double>(block.samples(of_a));
  }
  return seconds / samples;
}

StoredArm arm_of(const Comparison& c, bool of_a) {
  const ArmResult& arm = c.arms[of_a ? 0 : 1];
  const std::vector<Block>& blocks = c.pair().blocks;
  StoredArm stored;
  stored.arm = of_a ? "A" : "B";
  stored.name = arm.name;
  stored.samples_per_s = arm.samples_per_s;
  stored.recipe = arm.recipe;
  stored.plan = arm.facts.plan;
  stored.own_processes = c.sampling.own_processes;
  if (!stored.own_processes) {
    stored.seconds_per_sample = {seconds_per_sample(blocks, of_a)};
    return stored;
  }
  std::vector<double> log_ratios;
  for (const auto& pair : groups_of(blocks, true)) {
    stored.seconds_per_sample.push_back(seconds_per_sample(pair, of_a));
    const auto [a, b] = measurement_of(pair).seconds_per_sample;
    log_ratios.push_back(std::log(a / b));
  }
  if (log_ratios.size() >= 2)
    stored.pairing = Pairing{static_cast<int64_t>(log_ratios.size()), standard_deviation(log_ratios)};
  return stored;
}

StoredArm chosen(const Json& json, const Json& recipe) {
  if (json.contains("switches"))
    throw UserError("it is the result of an ablation; name one of trainopt compare", ExitCode::data);
  if (json.contains("each"))
    throw UserError("it is a result of --each; --against needs one of compare with two arms, or of --against",
                    ExitCode::data);
  if (is_against(json)) return measured_arm(against_from(json));
  const Comparison c = comparison_from(json);
  const auto same = [&](const ArmResult& arm) {
    return arm.recipe.is_object() && recipe_differences(arm.recipe, recipe).empty();
  };
  return arm_of(c, same(c.arms[0]) && !same(c.arms[1]));
}

}  // namespace

Json to_json(const StoredArm& arm) {
  return {{"name", arm.name},
          {"file", arm.file},
          {"arm", arm.arm},
          {"samples_per_s", arm.samples_per_s},
          {"own_processes", arm.own_processes},
          {"seconds_per_sample", arm.seconds_per_sample},
          {"pairing", arm.pairing ? Json{{"pairs", arm.pairing->pairs}, {"log_ratio_sd", arm.pairing->sd}} : Json()},
          {"recipe", arm.recipe},
          {"plan", arm.plan},
          {"environment", arm.environment}};
}

StoredArm stored_arm_from(const Json& json) {
  StoredArm arm{
      .file = json.at("file"), .arm = json.at("arm"), .name = json.at("name"), .seconds_per_sample = {}, .pairing = {}};
  arm.samples_per_s = json.at("samples_per_s");
  arm.own_processes = json.at("own_processes");
  arm.seconds_per_sample = json.at("seconds_per_sample").get<std::vector<double>>();
  if (const Json& pairing = json.at("pairing"); !pairing.is_null())
    arm.pairing = Pairing{pairing.at("pairs"), pairing.at("log_ratio_sd")};
  arm.recipe = json.at("recipe");
  arm.plan = json.at("plan");
  arm.environment = json.at("environment");
  return arm;
}

StoredArm read_stored_arm(const fs::path& file, const Json& recipe) {
  std::error_code error;
  const fs::path path = fs::is_directory(file, error) ? file / "result.json" : file;
  try {
    StoredArm arm = chosen(read_result(path), recipe);
    arm.file = file.string();
    const fs::path environment = folder_of(path) / "environment.json";
    if (fs::exists(environment, error)) arm.environment = parse_json(read_file(environment, ExitCode::data));
    return arm;
  } catch (const UserError& problem) {
    throw UserError(fmt::format("--against {}: {}", file.string(), problem.what()), ExitCode::data);
  } catch (const Json::exception& problem) {
    throw UserError(
        fmt::format("--against {}: its environment.json is not JSON: {}", file.string(), json_problem(problem)),
        ExitCode::data);
  }
}

std::string text(const Difference& d) { return fmt::format("{}: {} then, {} now", d.what, d.then, d.now); }

std::vector<Difference> recipe_differences(const Json& then, const Json& now) {
  return flat_differences(then, now, [](const std::string& key) {
    return !is_in_any(key, {"name", "output_dir", "run_dir", "bench"});
  });
}

std::vector<Difference> environment_differences(const Json& then, const Json& now) {
  const auto is_gpus = [](const std::string& key, std::initializer_list<const char*> facts) {
    return is_in(key, "gpus") &&
           std::any_of(facts.begin(), facts.end(), [&](const char* fact) { return key.ends_with(fact); });
  };
  auto all = flat_differences(then, now, [&](const std::string& key) {
    if (key == "cpu.threads") return false;  // a fact of the comparison itself, not of the arm
    return is_in_any(key, {"trainopt", "commit", "libtorch", "cuda", "cudnn", "nccl", "cpu", "memory_mib", "driver",
                           "kernel", "distribution"}) ||
           is_gpus(key, {".name", ".uuid", ".memory_mib"});
  });
  for (Difference& one : all)
    one.of_machine = is_in_any(one.what, {"cpu"}) || is_gpus(one.what, {".name", ".memory_mib"});
  return all;
}

std::vector<Difference> plan_differences(const Json& then, const Json& now, bool of_device) {
  auto all = flat_differences(then, now, [&](const std::string& key) {
    return key != "device.reason" && (is_in(key, "device") || (!of_device && !is_in_any(key, {"name", "notes"})));
  });
  for (Difference& one : all) {
    const auto type = [](const std::string& name) { return name.substr(0, name.find(':')); };  // cuda of cuda:1
    one.of_machine = is_in_any(one.what, {"device.cpu", "device.sm", "device.gpu_memory_bytes"}) ||
                     (one.what == "device.name" && type(one.then) != type(one.now));
    one.what = "plan." + one.what;
  }
  return all;
}

}  // namespace trainopt
