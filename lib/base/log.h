// The process's one logger, with spdlog's level names. Libraries log through spdlog's free functions.
#pragma once

#include <filesystem>
#include <string>

namespace trainopt {

/// Logs plain lines to standard error. `level` is one of trace debug info warning error off; any other throws
/// UserError.
void start_logging(const std::string& level, bool color);
/// From now on, every line of level debug and above also goes to `path`, with a timestamp.
void log_to_file(const std::filesystem::path& path);

}  // namespace trainopt
