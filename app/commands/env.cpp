// trainopt env: describes this machine.
#include "app/commands.h"
#include "base/print.h"
#include "metrics/hardware/environment.h"
#include "run/version.h"

#include <CLI/CLI.hpp>

namespace trainopt {
namespace {

void print_lines(const Json& json, const std::string& indent) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = json.is_array() ? "-" : key;
    if (value.is_structured() && !value.empty()) {
      print_out("{}{}\n", indent, name);
      print_lines(value, indent + "  ");
    } else {
      const std::string text = value.is_string()       ? value.get<std::string>()
                               : value.is_structured() ? "none"
                                                       : json_text(value);
      print_out("{}{:<20} {}\n", indent, name, text);
    }
  }
}

/// The variables that launchers set, so that a report of a multi-process problem includes them.
Json launch_variables(const Environment& environment) {
  Json found = Json::object();
  for (const auto& [name, value] : environment)
    for (const char* prefix : {"RANK",
                               "LOCAL_RANK",
                               "WORLD_SIZE",
                               "LOCAL_WORLD_SIZE",
                               "MASTER_",
                               "TORCHELASTIC_",
                               "TRAINOPT_LAUNCH",
                               "OMPI_COMM_WORLD_",
                               "PMIX_RANK",
                               "PMIX_NAMESPACE",
                               "PMI_",
                               "MPI_LOCAL",
                               "SLURM_PROCID",
                               "SLURM_NTASKS",
                               "SLURM_JOB_ID",
                               "SLURM_JOB_NODELIST",
                               "SLURM_LOCALID",
                               "SLURM_NODEID",
                               "SLURM_STEP_",
                               "SLURM_TASKS_PER_NODE",
                               "NCCL_",
                               "CUDA_VISIBLE_DEVICES"})
      if (name.starts_with(prefix)) found[name] = value;
  return found;
}

}  // namespace

Command add_env(CLI::App& app) {
  CLI::App* command = app.add_subcommand("env", "Show versions, CPU, GPUs, driver and launch variables");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  return [=](const CommandContext& context) {
    EnvironmentSources sources;
    sources.visible_devices = visible_devices(context.environment);
    Json all = environment({kBuild.version, kBuild.commit}, {}, sources);
    const auto recipes = carried_recipes();
    all["recipes"] = recipes ? Json(recipes->string()) : Json(nullptr);
    all["launch_variables"] = launch_variables(context.environment);
    if (*json)
      print_json(all);
    else
      print_lines(all, "");
    return 0;
  };
}

}  // namespace trainopt
