// Writes the pages of lib/report.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace trainopt {

/// Reads the folders and replaces `page` with one about them. `reload_s`: it reloads itself after these seconds.
/// Throws UserError for a folder that cannot be read, or a page that cannot be written.
void write_report(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& page,
                  std::optional<int> reload_s = std::nullopt);
/// Whether a process still writes to one of the folders, or to a run directory in one of them.
bool any_is_running(const std::vector<std::filesystem::path>& folders);

/// Writes FOLDER/report.html at the end of what wrote the folder. Its result is complete without the page, so a failure
/// is only a warning.
void write_own_report(const std::filesystem::path& folder);

}  // namespace trainopt
