// Tensors in safetensors files.
#pragma once

#include "base/files/safetensors.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>

namespace trainopt {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The tensors are on the CPU, in the file's order. Throws UserError(checkpoint) as SafetensorsFile does, and if the
/// file's hash is not `xxh3`.
NamedTensors load_tensors(const std::filesystem::path& path, const std::optional<uint64_t>& xxh3 = std::nullopt);

/// The type of tensors that files call `dtype`, such as "F32".
at::ScalarType type_of_dtype(const std::string& dtype);

/// The name of the first float32 or bfloat16 tensor that contains an infinity or NaN; null if none does. A matrix of
/// zeros and −∞, of both, is a mask and as it should be.
std::optional<std::string> first_not_finite(const NamedTensors& tensors);

/// Input for append_safetensors(): the tensors' bytes on the CPU, contiguous. They live as long as `storage`.
struct TensorEntries {
  std::vector<at::Tensor> storage;
  std::vector<SafetensorsEntry> entries;
};
TensorEntries tensor_entries(const NamedTensors& tensors);

/// The file holds the tensors contiguous, whatever their device and memory format. Throws UserError(storage).
void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const SafetensorsMetadata& metadata = {});

// A 16-bit copy of a parameter, maintained by the code that updates the parameter, so that autocast need not cast it in
// every step.

/// Shared by a layer and the model. The tensor is undefined if there is no copy.
using WeightCopy = std::shared_ptr<at::Tensor>;

/// The tensor that a layer computes with: the copy if autocast would cast the parameter to the same type, with its
/// gradient passed to the parameter as float32; otherwise the parameter.
at::Tensor as_autocast(const at::Tensor& parameter, const WeightCopy& copy);

}  // namespace trainopt
