// Fits the tensors of trained weights, which other programs may have saved, to a model's: files, names, layouts, types.
#pragma once

#include "model/builder.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trainopt {

/// The safetensors files that `path` stands for: itself; the parts that an index names (….safetensors.index.json, as
/// Hugging Face writes it); or those of a folder, which has an index, model.safetensors, weights.safetensors or only
/// one such file. Throws UserError(checkpoint) if there is none, or a part is missing.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& path);

/// Which tensor of the files each of a model's is read from.
struct FittedWeights {
  struct Source {
    size_t entry;        ///< in the model's entries
    bool is_transposed;  ///< the file holds the matrix as in × out
    bool operator==(const Source&) const = default;
  };
  std::vector<std::filesystem::path> files;
  std::map<std::string, Source> sources;  ///< by the file's name of the tensor; tied weights may have several names
  std::vector<std::string> notes;         ///< what was changed so that they fit
};

/// Reads the files' headers alone. The model's tensors may have shapes only. If `keeps_head`, the last layer's tensors
/// are not read, and the files may have any or none for them. Throws UserError(checkpoint) with the first ten
/// differences of each side.
FittedWeights fit_weights(const std::filesystem::path& path, const std::vector<StateEntry>& entries,
                          const NameOfFile& name_of_file, bool keeps_head);

}  // namespace trainopt
