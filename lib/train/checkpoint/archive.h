// Saved state: every part writes what it needs to resume. Entries have logical names such as
// "optimizer.momentum.conv1.weight", not positions, so that a run with another number of ranks or order of parts can
// load them.
#pragma once

#include "base/json.h"
#include "comm/config.h"
#include "model/weights_file.h"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

namespace trainopt {

/// What one rank contributes to a checkpoint. Rank 0 stores what is the same on all ranks; every rank stores what only
/// it has.
class ArchiveWriter {
 public:
  ArchiveWriter() = default;
  explicit ArchiveWriter(const RankPosition& position) : position_(position) {}
  /// An archive that collects names, types and shapes of what all ranks together would store. Contents are not needed,
  /// so nothing is exchanged.
  static ArchiveWriter of_shapes() {
    ArchiveWriter archive;
    archive.shapes_only_ = true;
    return archive;
  }
  const RankPosition& position() const { return position_; }
  bool shapes_only() const { return shapes_only_; }

  /// Adds a tensor that is the same on all ranks.
  void tensor(const std::string& name, const at::Tensor& value) {
    if (position_.is_first()) own_tensor(name, value);
  }
  /// Adds a tensor that only this rank has.
  void own_tensor(const std::string& name, const at::Tensor& value) {
    if (keeps(name)) tensors_.emplace_back(name, value);
  }
  /// Tensors that another rank stores, by name, are left out from now on.
  void keep_only(std::function<bool(const std::string& name)> keeps) { keeps_ = std::move(keeps); }
  bool keeps(const std::string& name) const { return !keeps_ || keeps_(name); }
  void value(const std::string& name, Json value) { values_[name] = std::move(value); }
  /// Adds this rank's items to a list shared by all ranks. Items that several ranks add appear once.
  void list(const std::string& name, Json items) { lists_[name] = std::move(items); }

  /// The parts' tensors themselves, not copies.
  const NamedTensors& tensors() const { return tensors_; }
  Json& values() { return values_; }
  const Json& values() const { return values_; }
  const Json& lists() const { return lists_; }
  int64_t bytes() const;                                 ///< all tensors' bytes
  int64_t bytes_under(const std::string& prefix) const;  ///< bytes of tensors whose name starts with `prefix`
  bool has_under(const std::string& prefix) const;

 private:
  RankPosition position_;
  bool shapes_only_ = false;
  std::function<bool(const std::string&)> keeps_;
  NamedTensors tensors_;
  Json values_ = Json::object(), lists_ = Json::object();
};

class ArchiveReader {
 public:
  /// `where`: the checkpoint's folder, for messages.
  ArchiveReader(std::filesystem::path where, NamedTensors tensors, Json values);

  bool has_under(const std::string& prefix) const;  ///< whether a tensor's name starts with `prefix`
  /// Copies the tensor into `target`. Throws UserError(checkpoint) if it is absent or has another shape or type.
  void tensor(const std::string& name, at::Tensor& target) const;
  /// The stored tensor itself. Throws UserError(checkpoint) if it is absent.
  const at::Tensor& tensor(const std::string& name) const;
  const Json& value(const std::string& name) const;
  int64_t integer(const std::string& name) const;
  const Json& values() const { return values_; }
  const std::map<std::string, at::Tensor>& tensors() const { return tensors_; }
  const std::filesystem::path& where() const { return where_; }

  /// Throws UserError(checkpoint) with the first ten differences in names, shapes and types unless it holds exactly the
  /// tensors of `expected`. Tensors whose names start with one of `ignored` are ignored, and those that `expected`
  /// leaves out because another rank stores them.
  void require_like(const ArchiveWriter& expected, const std::vector<std::string>& ignored = {}) const;

 private:
  [[noreturn]] void refuse(const std::string& why) const;

  std::filesystem::path where_;
  std::map<std::string, at::Tensor> tensors_;
  Json values_;
};

/// "float32 [64, 3, 7, 7]"
std::string shape_text(const at::Tensor& tensor);

}  // namespace trainopt
