// Tensors in safetensors files.
#pragma once

#include "base/safetensors.h"

#include <ATen/core/Tensor.h>

#include <utility>

namespace trainopt {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Copies on the CPU, in the order of the file. Throws UserError(checkpoint) as SafetensorsFile does.
NamedTensors load_tensors(const std::filesystem::path& path);

/// Whatever device and memory format the tensors have, the file holds them contiguous. Throws UserError(storage).
void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors, const SafetensorsMetadata& metadata = {});

}  // namespace trainopt
