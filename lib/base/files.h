// Whole-file reading and writing with errors that name the file and the reason.
#pragma once

#include "base/file_calls.h"

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace trainopt {

/// The file's bytes. Throws UserError(`code`) naming the path and errno's text, also for a folder, or if it is larger
/// than `limit` bytes.
std::string read_file(const std::filesystem::path& path, ExitCode code, int64_t limit = int64_t{1} << 40);

/// Has a new file beside `path` written, fsyncs it, renames it to `path` and fsyncs the folder: readers see the old
/// bytes or the new, also after a power failure. Throws UserError(storage) naming `path`.
void replace_file(const std::filesystem::path& path, const std::function<void(File&)>& write);
/// replace_file with these bytes.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// Creates the folder and its parents, and they are on the disk then. Throws UserError(storage).
void create_folders(const std::filesystem::path& path);

/// The folder in which `path` is: "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

}  // namespace trainopt
