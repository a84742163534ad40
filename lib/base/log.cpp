#include "base/log.h"

#include "base/error.h"
#include "base/files/file_calls.h"
#include "base/print.h"
#include "base/status_line.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>

namespace trainopt {

void start_logging(const std::string& level, bool color) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    throw UserError(fmt::format("--log-level must be one of trace, debug, info, warning, error, off: {}", level));
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(color ? spdlog::color_mode::automatic
                                                                          : spdlog::color_mode::never);
  sink->set_level(parsed);
  sink->set_pattern("%^%l%$: %v");
  auto logger = std::make_shared<spdlog::logger>("trainopt", std::move(sink));
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::warn);
  logger->set_error_handler(report_lost_lines);
  spdlog::set_default_logger(std::move(logger));
}

void log_to_file(const std::filesystem::path& path) {
  File::append_to(path);  // refuses a symbolic link, which could lead to any file
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
    sink->set_level(spdlog::level::debug);
    sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l: %v");
    spdlog::default_logger()->sinks().push_back(std::move(sink));
  } catch (const spdlog::spdlog_ex& error) {
    throw UserError(fmt::format("cannot write the log {}: {}", path.string(), error.what()), ExitCode::storage);
  }
}

void report_lost_lines(const std::string& problem) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) log_error("{}; training continues, but records and log lose lines", problem);
}

void flush_log() { spdlog::default_logger()->flush(); }

void log_only_errors() {
  for (const auto& sink : spdlog::default_logger()->sinks())
    if (sink->level() >= spdlog::level::info) sink->set_level(spdlog::level::err);
}

namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void write_log(LogLevel level, fmt::string_view text, fmt::format_args values) {
  if (spdlog::should_log(spdlog_level(level))) write_log(level, fmt::vformat(text, values));
}

void write_log(LogLevel level, const std::string& line) {
  const auto& sinks = spdlog::default_logger()->sinks();
  if (std::none_of(sinks.begin(), sinks.end(), [&](const auto& sink) { return sink->should_log(spdlog_level(level)); }))
    return;
  const StatusLineRemoved removed;
  spdlog::log(spdlog_level(level), printable(line));
}

}  // namespace trainopt
