// Tensors in safetensors files.
#pragma once

#include "base/safetensors.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

namespace trainopt {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// On the CPU, in the order of the file. Throws UserError(checkpoint) as SafetensorsFile does, and where the file's
/// bytes do not have the hash `xxh3`.
NamedTensors load_tensors(const std::filesystem::path& path, const std::optional<uint64_t>& xxh3 = std::nullopt);

/// The name of the first float32 tensor with a number that is infinite or undefined; null: none has one.
std::optional<std::string> first_not_finite(const NamedTensors& tensors);

/// For append_safetensors(): the tensors' bytes on the CPU, contiguous. They live as long as `kept`.
struct TensorEntries {
  std::vector<at::Tensor> kept;
  std::vector<SafetensorsEntry> entries;
};
TensorEntries tensor_entries(const NamedTensors& tensors);

/// Whatever device and memory format the tensors have, the file holds them contiguous. Throws UserError(storage).
void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const SafetensorsMetadata& metadata = {});

}  // namespace trainopt
