// The options of commands that show a trace.
#pragma once

#include "trace/analysis.h"

namespace CLI {
class App;
}  // namespace CLI

namespace trainopt {

/// --sort, --top, --group-by and --step.
struct TraceOptions {
  trace::AnalysisOptions analysis;
  trace::AnalysisView view;

  /// The options write into this object, which must outlive the parsing.
  void add_to(CLI::App& command);
};

}  // namespace trainopt
