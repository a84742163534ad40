// One logger for the process; levels as spdlog names them. Libraries log through spdlog's free functions.
#pragma once

#include <filesystem>
#include <string>

namespace trainopt {

/// Plain lines on standard error, `level` one of trace debug info warning error off. Throws UserError for another
/// level.
void start_logging(const std::string& level, bool color);
/// From now on every line (debug and up) also goes to `path` with a time stamp.
void log_to_file(const std::filesystem::path& path);

}  // namespace trainopt
