// The process's one logger. Its lines go to standard error, and to a run's log file. Only base/log.cpp sees spdlog:
// its headers format inside every source file that logs, which is a second of compiling each.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <string>

namespace trainopt {

/// Logs plain lines to standard error. `level` is one of trace debug info warning error off; any other throws
/// UserError.
void start_logging(const std::string& level, bool color);
/// From now on, every line of level debug and above also goes to `path`, with a timestamp.
void log_to_file(const std::filesystem::path& path);
/// Writes what the sinks still hold.
void flush_log();
/// From now on, standard error gets errors only, unless it gets debug lines.
void log_only_errors();

/// Says that records or log lose lines, with the problem that was met first. Later calls in this process say nothing: a
/// full disk fails for all files alike, and each run counts its own lost lines at its end.
void report_lost_lines(const std::string& problem);

enum class LogLevel { debug, info, warning, error };
/// One line, formatted only if the level is on.
void write_log(LogLevel level, fmt::string_view text, fmt::format_args values);
/// A line that is not a format.
void write_log(LogLevel level, const std::string& line);

#define TRAINOPT_LOG(name, level)                                       \
  template <class... T>                                                 \
  void name(fmt::format_string<T...> text, T&&... values) {             \
    write_log(LogLevel::level, text, fmt::make_format_args(values...)); \
  }                                                                     \
  inline void name(const std::string& line) { write_log(LogLevel::level, line); }
TRAINOPT_LOG(log_debug, debug)
TRAINOPT_LOG(log_info, info)
TRAINOPT_LOG(log_warning, warning)
TRAINOPT_LOG(log_error, error)
#undef TRAINOPT_LOG

}  // namespace trainopt
