// Arguments in, exit code out; the only place that catches.
#include "app/commands.h"
#include "app/explain.h"
#include "app/signals.h"
#include "base/log.h"
#include "device/process.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>

namespace trainopt {
namespace {

struct Entry {
  CLI::App* parsed;
  Command command;
};

int fail(const std::string& message, ExitCode code) {
  spdlog::default_logger()->flush();
  std::fprintf(stderr, "trainopt: %s\n", message.c_str());
  return static_cast<int>(code);
}

int run(int argc, char** argv, const Environment& environment) {
  CLI::App app("Which training optimization pays, on my hardware, for my job?", "trainopt");
  app.set_version_flag("--version", "trainopt " TRAINOPT_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  Speech speech;
  app.add_flag("--quiet", speech.quiet, "Print results only");
  app.add_flag("--no-color", speech.no_color, "No colours and no progress line");
  app.add_option("--log-level", speech.log_level, "trace, debug, info, warning, error or off")->capture_default_str();

  std::vector<Entry> table;
  const auto add = [&](CLI::App& parent, auto make) {
    Command command = make(parent);
    table.push_back({parent.get_subcommands({}).back(), std::move(command)});
  };
  add(app, add_run);
  add(app, add_plan);
  add(app, add_check);
  add(app, add_options);
  CLI::App& data = *app.add_subcommand("data", "Look at the loader alone");
  data.require_subcommand(1);
  add(data, add_data_bench);
  add(data, add_data_export);
  add(app, add_env);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version end here too, with exit code 0.
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(fmt::format("{}; trainopt --help lists the commands", error.what()), ExitCode::recipe);
  }
  if (environment.contains("NO_COLOR")) speech.no_color = true;
  start_logging(speech.log_level, !speech.no_color);
  require_x86_64_v3();
  handle_signals();
  for (const Entry& entry : table)
    if (entry.parsed->parsed()) return entry.command({environment, speech});
  return static_cast<int>(ExitCode::bug);
}

int guarded(int argc, char** argv, const Environment& environment) {
  try {
    return run(argc, argv, environment);
  } catch (const std::exception& error) {
    const auto [message, code] = explain(error);
    return fail(message, code);
  }
}

}  // namespace
}  // namespace trainopt

int main(int argc, char** argv) {
  const int code = trainopt::guarded(argc, argv, trainopt::read_environment(environ));
  std::fflush(stdout);
  return code;
}
