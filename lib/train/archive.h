// Where every part puts what it must find again when a run resumes. Entries carry a logical name ("optimizer.momentum.conv1.weight"),
// not a position, so that another number of ranks or another order of parts can load them.
#pragma once

#include "base/json.h"
#include "model/tensor_file.h"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

namespace trainopt {

class ArchiveWriter {
 public:
  void tensor(const std::string& name, const at::Tensor& value) { tensors_.emplace_back(name, value); }
  void value(const std::string& name, Json value) { values_[name] = std::move(value); }

  /// Writes `tensors.safetensors` and `state.json` into the folder. Throws UserError(storage).
  void write(const std::filesystem::path& folder) const;

 private:
  NamedTensors tensors_;
  Json values_ = Json::object();
};

class ArchiveReader {
 public:
  /// Throws UserError(checkpoint) if the folder is not a whole archive.
  explicit ArchiveReader(const std::filesystem::path& folder);

  /// Copies the entry into `target`. Throws UserError(checkpoint) if it is absent or of another shape or type.
  void tensor(const std::string& name, at::Tensor& target) const;
  const Json& value(const std::string& name) const;

 private:
  std::filesystem::path folder_;
  std::map<std::string, at::Tensor> tensors_;
  Json values_;
};

}  // namespace trainopt
