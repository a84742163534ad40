// Recognises from their names which files belong to a data set's training split, and which to the others.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

enum class Split { train, validation, test };

/// The split that a path names, by a whole word of it: those that Hugging Face's datasets understands (train, training;
/// val, valid, validation, dev; test, testing, eval, evaluation), and trainval, trainset and their like. Null without
/// such a word, or with words of several.
std::optional<Split> split_of(std::string_view path);

/// Whether a folder's name is the word of a split and perhaps a number: train, val2017.
bool is_split_name(std::string_view name);

/// What to write for data.path and evaluation.path where both splits are among the files.
struct SplitPaths {
  std::string training, evaluation;  ///< a path, a pattern, or a list in YAML's brackets
};
/// Null unless some of the files in `folder` are training files and some are others. `files`: paths below the folder.
std::optional<SplitPaths> splits_in(const std::string& folder, const std::vector<std::string>& files);

}  // namespace trainopt
