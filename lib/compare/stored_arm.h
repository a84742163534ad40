// An arm of an earlier result, which a fresh measurement is held against, and what has changed since.
#pragma once

#include "base/json.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// How much pairs of processes that took turns varied.
struct Pairing {
  int64_t pairs = 0;
  double sd = 0;  ///< standard deviation of the log ratio of one pair
};

struct StoredArm {
  std::string file, arm, name;                    ///< the file as given; "A" or "B" in it; the recipe as it was named
  double samples_per_s = 0;                       ///< throughput over all processes
  bool own_processes = false;                     ///< false: both arms shared one process, which is one measurement
  std::vector<double> seconds_per_sample;         ///< one value for each process
  std::optional<Pairing> pairing;                 ///< null: fewer than two pairs
  Json recipe = {}, plan = {}, environment = {};  ///< null: not stored
};
Json to_json(const StoredArm& arm);
/// Throws Json::exception.
StoredArm stored_arm_from(const Json& json);

/// The arm of the result in `file` (result.json or its folder) whose recipe equals `recipe`, otherwise its B. Of a
/// result of --against, which has measured only its B: that one. Throws UserError(data) naming the file.
StoredArm read_stored_arm(const std::filesystem::path& file, const Json& recipe);

struct Difference {
  std::string what, then, now;
  bool of_machine = false;  ///< another CPU or GPU: a difference in speed is then the machines' as well
};
/// "cpu.model: X then, Y now".
std::string text(const Difference& difference);

/// The keys in which two recipes differ, other than those for names and folders and how results are measured.
std::vector<Difference> recipe_differences(const Json& then, const Json& now);
/// Versions and hardware that differ; what was not stored is left out.
std::vector<Difference> environment_differences(const Json& then, const Json& now);
/// What differs between the plans: of equal recipes all, otherwise (`of_device`) the device alone.
std::vector<Difference> plan_differences(const Json& then, const Json& now, bool of_device);

}  // namespace trainopt
