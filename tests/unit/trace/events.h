// Small traces, written event by event. Times are microseconds, as in the files.
#pragma once

#include "support/temporary_folder.h"
#include "trace/analysis.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace trainopt::trace {

constexpr int kMain = 7, kAutograd = 8, kHelper = 9;  // threads of process 100

inline std::string event(const std::string& category, const std::string& name, int thread, double start,
                         double duration, const std::string& arguments = "", int process = 100) {
  return fmt::format(R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, )"
                     R"("args": {{{}}}}})",
                     category, name, process, thread, start, duration, arguments);
}

inline std::string operation(const std::string& name, double start, double duration, const std::string& arguments = "",
                             int thread = kMain) {
  return event("cpu_op", name, thread, start, duration, arguments);
}

inline std::string annotation(const std::string& name, double start, double duration, int thread = kMain) {
  return event("user_annotation", name, thread, start, duration);
}

/// A runtime call that launches what has the same `correlation`.
inline std::string launch(int correlation, double start, double duration, const std::string& arguments = "") {
  return event("cuda_runtime", "cudaLaunchKernel", kMain, start, duration,
               fmt::format(R"("correlation": {}{})", correlation, arguments));
}

inline std::string on_device(const std::string& category, const std::string& name, double start, double duration,
                             const std::string& arguments = "") {
  return event(category, name, 7, start, duration, arguments, 0);
}

inline std::string kernel(const std::string& name, double start, double duration, const std::string& arguments = "") {
  return on_device("kernel", name, start, duration, arguments);
}

inline std::string trace_text(const std::vector<std::string>& events, const std::string& members = "") {
  return fmt::format("{{{}\"traceEvents\": [\n{}\n]}}", members, fmt::join(events, ",\n"));
}

inline std::filesystem::path stored(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder / name, std::ios::binary) << text;
  return folder / name;
}

/// The analysis of a trace of one rank.
inline RankAnalysis analysed(const std::vector<std::string>& events, const AnalysisOptions& options = {}) {
  const TemporaryFolder folder;
  return analyse_trace(stored(folder, "trace.json", trace_text(events)), options).ranks.at(0);
}

}  // namespace trainopt::trace
