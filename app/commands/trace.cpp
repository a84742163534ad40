// trainopt trace FILE...: where the time of profiled steps went.
#include "app/commands.h"
#include "app/shared_options.h"
#include "base/print.h"
#include "trace/analysis.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace trainopt {
namespace {

struct TraceArguments {
  std::vector<std::string> files;
  bool json = false, csv = false;
  TraceOptions options;
};

int print_trace(const TraceArguments& arguments) {
  const auto analysis =
      trace::analyse_traces({arguments.files.begin(), arguments.files.end()}, arguments.options.analysis);
  if (arguments.json)
    print_json(trace::analysis_json(analysis, arguments.options.view));
  else if (arguments.csv)
    print_text(trace::operations_csv(analysis, arguments.options.view));
  else
    print_text(trace::analysis_text(analysis, arguments.options.view));
  return 0;
}

}  // namespace

Command add_trace(CLI::App& app) {
  CLI::App* command = app.add_subcommand("trace", "Show where the time of profiled steps went");
  const auto arguments = std::make_shared<TraceArguments>();
  command->add_option("file", arguments->files, "Traces of the PyTorch profiler, plain or .gz; one per rank, or merged")
      ->required()
      ->type_name("FILE...");
  auto* json = command->add_flag("--json", arguments->json, "Print one JSON object");
  command->add_flag("--csv", arguments->csv, "Print the operations as CSV")->excludes(json);
  arguments->options.add_to(*command);
  return [=](const CommandContext&) { return print_trace(*arguments); };
}

}  // namespace trainopt
