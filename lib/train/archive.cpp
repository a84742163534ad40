#include "train/archive.h"

#include "base/files.h"

#include <ATen/ATen.h>

namespace trainopt {
namespace {
constexpr const char* kTensors = "tensors.safetensors";
constexpr const char* kState = "state.json";
constexpr int kSchemaVersion = 1;

[[noreturn]] void refuse(const std::filesystem::path& folder, const std::string& why) {
  throw UserError(fmt::format("{} is not a checkpoint this program can read: {}", folder.string(), why), ExitCode::checkpoint);
}
}  // namespace

void ArchiveWriter::write(const std::filesystem::path& folder) const {
  create_folders(folder);
  save_tensors(folder / kTensors, tensors_);
  Json state = {{"schema_version", kSchemaVersion}};
  state.update(values_);
  write_file(folder / kState, state.dump(2) + "\n");
}

ArchiveReader::ArchiveReader(const std::filesystem::path& folder) : folder_(folder) {
  values_ = Json::parse(read_file(folder / kState, ExitCode::checkpoint), nullptr, /*allow_exceptions=*/false);
  if (!values_.is_object() || values_.value("schema_version", 0) != kSchemaVersion) refuse(folder, fmt::format("{} is damaged or of another version", kState));
  for (auto& [name, tensor] : load_tensors(folder / kTensors)) tensors_.emplace(name, tensor);
}

void ArchiveReader::tensor(const std::string& name, at::Tensor& target) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse(folder_, fmt::format("it has no tensor {}", name));
  if (found->second.sizes() != target.sizes() || found->second.scalar_type() != target.scalar_type())
    refuse(folder_, fmt::format("the tensor {} has another shape or type", name));
  const at::NoGradGuard no_grad;
  target.copy_(found->second);
}

const Json& ArchiveReader::value(const std::string& name) const {
  if (!values_.contains(name)) refuse(folder_, fmt::format("{} has no value {}", kState, name));
  return values_.at(name);
}

}  // namespace trainopt
