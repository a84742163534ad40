// trainopt report FOLDER...: one page to look at, in one file.
#include "app/commands.h"
#include "base/error.h"
#include "base/print.h"
#include "report/sources.h"
#include "run/report_page.h"
#include "run/signals.h"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <thread>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> folders;
  std::string out;
  bool watch = false, json = false;
  int interval_s = 5;
};

/// The page of one folder lies inside it, that of several in the current directory.
fs::path page_of(const ReportArguments& arguments) {
  if (!arguments.out.empty()) return arguments.out;
  return arguments.folders.size() == 1 ? fs::path(arguments.folders.front()) / "report.html" : fs::path("report.html");
}

/// Rewrites the page until all runs have ended or a signal arrives. The last page does not reload itself.
int watch(const ReportArguments& arguments, const std::vector<fs::path>& folders, const fs::path& page) {
  handle_signals();
  bool said = false;
  for (;;) {
    const bool goes_on = any_is_running(folders) && stop_signal() == 0;
    write_report(folders, page, goes_on ? std::optional(arguments.interval_s) : std::nullopt);
    if (!std::exchange(said, true)) {
      print_out("{}\n", page.string());
      std::fflush(stdout);
    }
    if (!goes_on) return stop_signal() == 0 ? 0 : 128 + stop_signal();
    using namespace std::chrono_literals;
    for (auto waited = 0ms; waited < std::chrono::seconds(arguments.interval_s) && stop_signal() == 0; waited += 100ms)
      std::this_thread::sleep_for(100ms);
  }
}

int write_page(const ReportArguments& arguments) {
  const std::vector<fs::path> folders(arguments.folders.begin(), arguments.folders.end());
  const fs::path page = page_of(arguments);
  if (arguments.watch) return watch(arguments, folders, page);
  write_report(folders, page);
  if (arguments.json) {
    Json json = {{"page", page.string()}};
    json.update(to_json(report::read_sources(folders)));
    print_json(json);
  } else {
    print_out("{}\n", page.string());
  }
  return 0;
}

}  // namespace

Command add_report(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Write a page about runs, comparisons or ablations, to look at");
  const auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option(
          "folder", arguments->folders,
          "Run directories, results of compare or ablate, or a folder of run directories; several side by side")
      ->required()
      ->type_name("FOLDER...");
  command
      ->add_option("--out", arguments->out, "The page's file; default: report.html in the folder, or here for several")
      ->type_name("FILE")
      ->check([](const std::string& text) { return text.empty() ? "must not be empty" : ""; });
  auto* watch =
      command->add_flag("--watch", arguments->watch, "While a run goes on, rewrite the page; it reloads itself");
  command->add_flag("--json", arguments->json, "Print what the page shows as one JSON object")->excludes(watch);
  command->add_option("--interval", arguments->interval_s, "Seconds between two pages of --watch")
      ->check(CLI::Range(1, 3600))
      ->needs(watch)
      ->capture_default_str();
  return [=](const CommandContext&) { return write_page(*arguments); };
}

}  // namespace trainopt
