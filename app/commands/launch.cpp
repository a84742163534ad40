// trainopt launch: starts several ranks on this machine, without mpirun or torchrun.
#include "app/commands.h"
#include "base/sha256.h"
#include "base/signals.h"
#include "comm/launch/launch_environment.h"
#include "comm/launch/local_ranks.h"
#include "device/device.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>

namespace trainopt {
namespace {

constexpr int64_t kMaxRanks = 1024;  // ranks per machine, and machines; more must be a typing error
constexpr int64_t kMaxRestarts = 1000;

struct LaunchOptions {
  std::string count;
  std::string nodes = "1", node_rank, rendezvous, max_restarts = "0";
  std::vector<std::string> words;
};

int number_from(const std::string& option, const std::string& text, int64_t minimum, int64_t maximum) {
  const auto number = parse_count(text);
  if (!number || *number < minimum || *number > maximum)
    throw UserError(fmt::format("{} must be a whole number from {} to {}: {}", option, minimum, maximum, text));
  return static_cast<int>(*number);
}

int count_of(const LaunchOptions& options) {
  if (options.count != "auto") return number_from("-n", options.count, 1, kMaxRanks);
  const BlockedSignals blocked;  // in the driver's threads: signals are for run_local_ranks()
  const int gpus = cuda_count();
  if (gpus == 0)
    throw UserError("-n auto starts one rank per GPU, but this machine has no usable GPU; give a number: -n 2");
  return gpus;
}

void set_rendezvous(const std::string& text, LocalRanks& spec) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw UserError(
        fmt::format("--rendezvous must be host:port, the machine of rank 0 and a free port on it: {}", text));
  spec.master_address = text.substr(0, colon);
  if (spec.master_address.starts_with('[') && spec.master_address.ends_with(']'))  // [::1]:29500
    spec.master_address = spec.master_address.substr(1, spec.master_address.size() - 2);
  spec.master_port = number_from("the port of --rendezvous", text.substr(colon + 1), 1, 65535 - spec.max_restarts);
}

LocalRanks read_options(const LaunchOptions& options) {
  LocalRanks spec;
  spec.nodes = number_from("--nnodes", options.nodes, 1, kMaxRanks);
  if (spec.nodes > 1 && options.node_rank.empty())
    throw UserError(
        fmt::format("set --node-rank to say which of the {} machines this is: 0 to {}", spec.nodes, spec.nodes - 1));
  if (!options.node_rank.empty()) spec.node_rank = number_from("--node-rank", options.node_rank, 0, spec.nodes - 1);
  if (spec.nodes > 1 && options.rendezvous.empty())
    throw UserError(
        "several machines need --rendezvous host:port: the machine with --node-rank 0 and a free port on it");
  spec.max_restarts = number_from("--max-restarts", options.max_restarts, 0, kMaxRestarts);
  if (!options.rendezvous.empty()) set_rendezvous(options.rendezvous, spec);
  if (options.words.empty()) throw UserError("name what to start: trainopt launch -n 2 -- run RECIPE [key=value ...]");
  constexpr std::array kForRanks{"run", "compare", "ablate", "profile", "roofline", "tune"};
  if (std::find(kForRanks.begin(), kForRanks.end(), options.words.front()) == kForRanks.end())
    throw UserError(fmt::format("launch starts one of {}; name it first after --: {}", fmt::join(kForRanks, ", "),
                                options.words.front()));
  if (spec.max_restarts > 0 && options.words.front() != "run")
    throw UserError(fmt::format("--max-restarts is for run, which goes on from its newest checkpoint; leave it out: {}",
                                options.words.front()));
  spec.count = count_of(options);
  return spec;
}

/// With srun, one task per machine may start that machine's ranks. Otherwise, ranks that start ranks are a mistake.
void refuse_inside_launcher(const Launch& launch, const LocalRanks& spec) {
  if (launch.position.ranks == 1) return;
  if (launch.launcher == "srun" && launch.position.local_ranks == 1 && launch.position.ranks == spec.nodes &&
      launch.position.rank == spec.node_rank)
    return;
  throw UserError(fmt::format("{} started this process as one of {} ranks; use it without trainopt launch: {}",
                              launch.launcher, launch.position.ranks, fmt::join(launch.variables, " ")));
}

std::vector<std::string> command_line(const LaunchOptions& options, const OutputOptions& output) {
  std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe").string()};
  if (output.log_level != OutputOptions().log_level) command.insert(command.end(), {"--log-level", output.log_level});
  if (output.quiet) command.push_back("--quiet");
  if (output.no_color) command.push_back("--no-color");
  command.insert(command.end(), options.words.begin(), options.words.end());
  return command;
}

}  // namespace

Command add_launch(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "launch", "Start several ranks on this machine: launch -n 2 -- run RECIPE, or compare, ablate or tune");
  const auto options = std::make_shared<LaunchOptions>();
  command->add_option("-n,--nproc-per-node", options->count, "Ranks on this machine; auto: one per GPU")->required();
  command->add_option("--nnodes", options->nodes, "Number of machines; run this command on each of them")
      ->capture_default_str();
  command->add_option("--node-rank", options->node_rank, "Index of this machine, from 0");
  command->add_option("--rendezvous", options->rendezvous, "host:port of machine 0; the port must be free");
  command
      ->add_option("--max-restarts", options->max_restarts,
                   "How often all ranks are started again, from the newest checkpoint, when one is killed or lost")
      ->capture_default_str();
  command->add_option("command", options->words, "Command that each rank runs, after --")
      ->type_name("-- run|compare|ablate RECIPE ...");
  command->allow_extras();  // CLI11 counts the -- itself as an extra
  return [=](const CommandContext& context) {
    for (const auto& word : extra_arguments(*command))
      if (word != "--")
        throw UserError(
            fmt::format("unexpected argument; put the ranks' options after --, and see trainopt launch --help for "
                        "those of launch: {}",
                        word));
    LocalRanks spec = read_options(*options);
    refuse_inside_launcher(read_launch(context.environment), spec);
    spec.command = command_line(*options, context.output);
    for (const char* document : {"--json", "--markdown"})
      if (std::find(options->words.begin(), options->words.end(), document) != options->words.end())
        spec.bare_output = true;
    spec.environment = context.environment;
    // On several machines only the user can give all launchers the same key.
    if (key_in(context.environment).empty() && spec.nodes == 1) spec.environment[kKeyVariable] = random_key();
    return run_local_ranks(spec);
  };
}

}  // namespace trainopt
