// Finds the files that data.path and evaluation.path name.
#pragma once

#include "base/files/file_calls.h"
#include "data/files/data_paths.h"
#include "data/files/left_out.h"
#include "data/files/splits.h"
#include "storage/data_files.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct FoundFiles {
  std::vector<std::string> files;  ///< in the order of the paths; those of a folder or a pattern in bytewise order
  LeftOut left_out;                ///< what else is in the folders
};

/// Whether the name ends so, in upper or lower case.
bool has_ending(std::string_view name, std::string_view ending);
bool has_ending(std::string_view name, std::span<const std::string_view> endings);

/// What a local path is; links are followed. Throws UserError(data) with the reason if it does not exist or cannot be
/// found out.
PathKind require_path(const std::string& path);

/// What a path names, unjudged: the matches of a pattern, the entries of a folder, as DataFiles::list() has them, or
/// the path itself, also if it does not exist. A remote path that has none of these endings is a folder.
std::vector<std::string> names_at(DataFiles& storage, const std::string& path,
                                  std::span<const std::string_view> endings);

/// "; data.dataset: tar reads *.tar files": for the kinds of files among these that a data format reads; or "".
std::string reader_hint(const LeftOut& others);

/// "data.path=A evaluation.path=B", quoted for YAML and for a shell.
std::string words_for(const SplitPaths& splits);

/// "a.bin, b.bin, c.bin, ...".
std::string first_of(const std::vector<std::string>& names);

/// The files of these paths. A path is a file, a folder whose files end in one of `endings`, a pattern with *, ? and
/// [...], or names in braces: train-{0000..0146}.tar, {a,b}.bin. Throws UserError(data), with the first names and their
/// number, for what does not exist, folders and patterns without such a file, patterns that fit other files too, a file
/// that is named twice, and a folder or pattern that has the files of several splits.
FoundFiles find_files(DataFiles& storage, const DataPaths& paths, std::span<const std::string_view> endings);

/// Throws UserError(data) with the two paths to write if training files and others are among them.
void require_one_split(const std::string& folder, const std::vector<std::string>& files);

}  // namespace trainopt
