// trainopt trace FILE...: where the time of profiled steps went.
#include "app/commands.h"
#include "trace/analysis.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace trainopt {
namespace {

struct TraceArguments {
  std::vector<std::string> files;
  bool json = false, csv = false;
  trace::AnalysisOptions options;
  trace::AnalysisView view;
};

const std::map<std::string, trace::SortBy> kSortings = {{"cpu_self", trace::SortBy::cpu_self},
                                                        {"cpu_total", trace::SortBy::cpu_total},
                                                        {"device_self", trace::SortBy::device_self},
                                                        {"device_total", trace::SortBy::device_total},
                                                        {"calls", trace::SortBy::calls}};
const std::map<std::string, trace::GroupBy> kGroupings = {
    {"name", trace::GroupBy::name}, {"shape", trace::GroupBy::shape}, {"unit", trace::GroupBy::unit}};

/// Refuses a word that is not a key of `choices`, and names these.
template <class Value>
CLI::Option* add_choice(CLI::App& command, const char* option, const std::map<std::string, Value>& choices,
                        const std::function<void(Value)>& set, const char* help) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  return command
      .add_option_function<std::string>(
          option, [&choices, set](const std::string& word) { set(choices.at(word)); }, help)
      ->check(CLI::IsMember(words))
      ->type_name("WORD");
}

int print_trace(const TraceArguments& arguments) {
  const auto analysis = trace::analyse_traces({arguments.files.begin(), arguments.files.end()}, arguments.options);
  if (arguments.json)
    print_json(trace::analysis_json(analysis, arguments.view));
  else if (arguments.csv)
    std::fputs(trace::operations_csv(analysis, arguments.view).c_str(), stdout);
  else
    std::fputs(trace::analysis_text(analysis, arguments.view).c_str(), stdout);
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
  add_choice<trace::SortBy>(
      *command, "--sort", kSortings, [=](trace::SortBy by) { arguments->view.sort = by; },
      "Order of the operations (default: device_self with a device, otherwise cpu_self)");
  command
      ->add_option_function<size_t>(
          "--top", [=](size_t top) { arguments->view.top = top; },
          "Rows of operations, kernels and units (default: 15 in the text, otherwise all)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  add_choice<trace::GroupBy>(
      *command, "--group-by", kGroupings, [=](trace::GroupBy by) { arguments->options.group_by = by; },
      "What distinguishes operations besides the name: nothing, the input shapes or the unit of the model");
  command
      ->add_option_function<int64_t>(
          "--step", [=](int64_t step) { arguments->options.step = step; }, "Only this step")
      ->type_name("N");
  return [=](const CommandContext&) { return print_trace(*arguments); };
}

}  // namespace trainopt
