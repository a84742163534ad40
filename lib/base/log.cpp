#include "base/log.h"

#include "base/error.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdio>

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
  // A full disk fails for every line; report it once.
  logger->set_error_handler([reported = std::make_shared<std::atomic<bool>>(false)](const std::string& problem) {
    if (!reported->exchange(true)) std::fprintf(stderr, "warning: the log is incomplete: %s\n", problem.c_str());
  });
  spdlog::set_default_logger(std::move(logger));
}

void log_to_file(const std::filesystem::path& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
    sink->set_level(spdlog::level::debug);
    sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l: %v");
    spdlog::default_logger()->sinks().push_back(std::move(sink));
  } catch (const spdlog::spdlog_ex& error) {
    throw UserError(fmt::format("cannot write the log {}: {}", path.string(), error.what()), ExitCode::storage);
  }
}

}  // namespace trainopt
