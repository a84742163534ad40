// Whole-file reading and writing with errors that name the file and the reason.
#pragma once

#include "base/error.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace trainopt {

/// The file's bytes. Throws UserError(`code`) naming the path and errno's text, also for a folder, or if it is larger than `limit` bytes.
std::string read_file(const std::filesystem::path& path, ExitCode code, int64_t limit = int64_t{1} << 40);

/// Writes to a temporary file beside `path`, fsyncs and renames: readers see the old bytes or the new. Throws UserError(storage).
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// Creates the folder and its parents. Throws UserError(storage).
void create_folders(const std::filesystem::path& path);

}  // namespace trainopt
