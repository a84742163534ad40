#include "app/compare_output.h"

#include "base/log.h"
#include "app/report_page.h"
#include "app/signals.h"
#include "base/print.h"

#include <cstdio>

namespace trainopt {

Observer observer_of(const OutputOptions& console, Explain explain) {
  return {.report =
              [quiet = console.quiet](const std::string& line) {
                if (!quiet) log_info("{}", line);
              },
          .stop = &stop_signal(),
          .explain = std::move(explain)};
}

int end_comparison(const std::filesystem::path& folder, const CompareOutput& output, const std::string& failure,
                   ExitCode failure_code, int code) {
  if (!output.json && !output.markdown)
    print_out("\nresults are in {}; trainopt compare --show reads them on any machine\n", folder.string());
  std::fflush(stdout);  // a launcher may end this process soon after another rank has failed
  write_own_report(folder);
  if (!failure.empty()) throw UserError(failure, failure_code);
  return stop_signal() != 0 ? 128 + stop_signal() : code;
}

}  // namespace trainopt
