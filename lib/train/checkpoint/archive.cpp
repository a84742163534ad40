#include "train/checkpoint/archive.h"

#include "device/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace trainopt {

int64_t ArchiveWriter::bytes() const { return bytes_under(""); }

int64_t ArchiveWriter::bytes_under(const std::string& prefix) const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_)
    if (name.starts_with(prefix)) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

bool ArchiveWriter::has_under(const std::string& prefix) const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const auto& entry) { return entry.first.starts_with(prefix); });
}

ArchiveReader::ArchiveReader(std::filesystem::path where, NamedTensors tensors, Json values)
    : where_(std::move(where)), values_(std::move(values)) {
  for (auto& [name, tensor] : tensors) tensors_.emplace(name, std::move(tensor));
}

void ArchiveReader::refuse(const std::string& why) const {
  throw UserError(fmt::format("the checkpoint does not fit this run: {}; {}", where_.string(), why),
                  ExitCode::checkpoint);
}

const at::Tensor& ArchiveReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse(fmt::format("it has no tensor {}", name));
  return found->second;
}

void ArchiveReader::tensor(const std::string& name, at::Tensor& target) const {
  const at::Tensor& stored = tensor(name);
  if (stored.sizes() != target.sizes() || stored.scalar_type() != target.scalar_type())
    refuse(fmt::format("the tensor {} has the wrong shape or type: {}, expected {}", name, shape_text(stored),
                       shape_text(target)));
  const at::NoGradGuard no_grad;
  target.copy_(stored);
}

const Json& ArchiveReader::value(const std::string& name) const {
  if (!values_.contains(name)) refuse(fmt::format("it has no value {}", name));
  return values_.at(name);
}

int64_t ArchiveReader::integer(const std::string& name) const {
  const Json& found = value(name);
  if (!found.is_number_integer()) refuse(fmt::format("{} is not a whole number: {}", name, json_text(found)));
  return found.get<int64_t>();
}

bool ArchiveReader::has_under(const std::string& prefix) const {
  const auto found = tensors_.lower_bound(prefix);
  return found != tensors_.end() && found->first.starts_with(prefix);
}

void ArchiveReader::require_like(const ArchiveWriter& expected, const std::vector<std::string>& ignored) const {
  constexpr size_t kMaxShown = 10;
  const auto compared = [&](const std::string& name) {
    return expected.keeps(name) && std::none_of(ignored.begin(), ignored.end(),
                                                [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  std::vector<std::string> differences;
  std::map<std::string, const at::Tensor*> wanted;
  for (const auto& [name, tensor] : expected.tensors())
    if (compared(name)) wanted.emplace(name, &tensor);
  for (const auto& [name, tensor] : wanted) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      differences.push_back(fmt::format("{} is missing", name));
    else if (found->second.sizes() != tensor->sizes() || found->second.scalar_type() != tensor->scalar_type())
      differences.push_back(
          fmt::format("{} is {} there but {} here", name, shape_text(found->second), shape_text(*tensor)));
  }
  for (const auto& [name, tensor] : tensors_)
    if (compared(name) && !wanted.contains(name)) differences.push_back(fmt::format("{} is not expected", name));
  if (differences.empty()) return;
  const size_t all = differences.size();
  differences.resize(std::min(all, kMaxShown));
  refuse(fmt::format("{}{}", fmt::join(differences, "; "),
                     all > kMaxShown ? fmt::format("; and {} more", all - kMaxShown) : ""));
}

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", type_name(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

}  // namespace trainopt
