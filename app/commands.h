// The command table. A command is a function that returns the exit code.
#pragma once

#include "app/arguments.h"

#include <functional>

namespace trainopt {

struct CommandContext {
  const Environment& environment;
  OutputOptions output;
};
/// `context` for a process that a launcher may have started.
CommandContext of_rank(const CommandContext& context);
using Command = std::function<int(const CommandContext&)>;

/// Each adds its subcommand with its options and returns the function to run if the user chose it.
Command add_run(CLI::App& app);
Command add_plan(CLI::App& app);
Command add_check(CLI::App& app);
Command add_options(CLI::App& app);
Command add_data_bench(CLI::App& data);
Command add_data_export(CLI::App& data);
Command add_data_pack(CLI::App& data);
Command add_data_show(CLI::App& data);
Command add_compare(CLI::App& app);
Command add_ablate(CLI::App& app);
Command add_find_batch(CLI::App& find);
Command add_find_lr(CLI::App& find);
Command add_tune(CLI::App& app);
Command add_arm(CLI::App& app);
Command add_checkpoint_verify(CLI::App& checkpoint);
Command add_checkpoint_show(CLI::App& checkpoint);
Command add_checkpoint_diff(CLI::App& checkpoint);
Command add_model_show(CLI::App& model);
Command add_model_save(CLI::App& model);
Command add_profile(CLI::App& app);
Command add_roofline(CLI::App& app);
Command add_launch(CLI::App& app);
Command add_env(CLI::App& app);
Command add_completion(CLI::App& app);
Command add_help(CLI::App& app);
Command add_trace(CLI::App& app);
Command add_report(CLI::App& app);

}  // namespace trainopt
