// Reading and writing whole files, with errors that name the file and the reason.
#pragma once

#include "base/files/file_calls.h"

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace trainopt {

/// The most that read_file takes where its caller knows no bound: more than any text that this program writes.
inline constexpr int64_t kMostBytesRead = int64_t{4} << 30;

/// The file's bytes. Throws UserError(`code`) that names the path and the reason, also for a folder and for a file
/// larger than `limit` bytes.
std::string read_file(const std::filesystem::path& path, ExitCode code, int64_t limit = kMostBytesRead);

/// Replaces `path` atomically: calls `write` with a temporary file next to it, fsyncs that file, renames it to `path`
/// and fsyncs the folder. Readers see the old bytes or the new, even after a power failure. Throws UserError(storage)
/// that names `path`.
void replace_file(const std::filesystem::path& path, const std::function<void(File&)>& write);
/// replace_file with these bytes.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// Durably creates the folder and its parents. Throws UserError(storage).
void create_folders(const std::filesystem::path& path);

/// The parent folder of `path`; "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

}  // namespace trainopt
