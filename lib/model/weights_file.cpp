#include "model/weights_file.h"

#include "base/error.h"
#include "device/autocast.h"
#include "device/differentiable.h"
#include "device/tensor.h"

#include <array>
#include <bit>
#include <limits>

namespace trainopt {
namespace {

constexpr std::array<std::pair<const char*, at::ScalarType>, 10> kTypes{{{"F64", at::kDouble},
                                                                         {"F32", at::kFloat},
                                                                         {"F16", at::kHalf},
                                                                         {"BF16", at::kBFloat16},
                                                                         {"I64", at::kLong},
                                                                         {"I32", at::kInt},
                                                                         {"I16", at::kShort},
                                                                         {"I8", at::kChar},
                                                                         {"U8", at::kByte},
                                                                         {"BOOL", at::kBool}}};

std::string word_of_type(at::ScalarType type, const std::string& name) {
  for (const auto& [word, known] : kTypes)
    if (type == known) return word;
  throw BrokenInvariant(
      fmt::format("tensor {} has the type {}, which safetensors files cannot store", name, at::toString(type)));
}

}  // namespace

at::ScalarType type_of_dtype(const std::string& dtype) {
  for (const auto& [word, type] : kTypes)
    if (dtype == word) return type;
  throw BrokenInvariant("the reader let an unknown dtype through: " + dtype);
}

NamedTensors load_tensors(const std::filesystem::path& path, const std::optional<uint64_t>& xxh3) {
  const SafetensorsFile file(path);
  NamedTensors tensors;
  for (const auto& entry : file.entries())
    tensors.emplace_back(entry.name, at::empty(entry.shape, at::TensorOptions(type_of_dtype(entry.dtype))));
  const uint64_t hash = file.read([&](size_t entry) { return tensors[entry].second.mutable_data_ptr(); }).value();
  if (xxh3 && hash != *xxh3)
    throw UserError(fmt::format("{} was changed since it was saved: its hash is {}, and was {}", path.string(),
                                hex(hash), hex(*xxh3)),
                    ExitCode::checkpoint);
  return tensors;
}

namespace {

/// What hides scores of attention: a matrix of zeros and −∞, of both. Weights that diverge do not look like this.
bool is_additive_mask(const at::Tensor& values) {
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  const at::Tensor shown = values == 0;
  return values.dim() >= 2 && shown.any().item<bool>() && (shown | (values == kHidden)).all().item<bool>();
}

}  // namespace

std::optional<std::string> first_not_finite(const NamedTensors& tensors) {
  constexpr uint32_t kExponent = 0x7F800000;  // all ones: infinite or not a number
  for (const auto& [name, tensor] : tensors) {
    if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kBFloat16) continue;
    const at::Tensor on_host = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
    const float* values = on_host.const_data_ptr<float>();
    bool bad = false;
    for (int64_t i = 0; i < on_host.numel(); ++i) bad |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent;
    if (bad && !is_additive_mask(on_host)) return name;
  }
  return std::nullopt;
}

TensorEntries tensor_entries(const NamedTensors& tensors) {
  TensorEntries result;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor& storage = result.storage.emplace_back(tensor.detach().to(at::kCPU).contiguous());
    result.entries.push_back({name, word_of_type(storage.scalar_type(), name), storage.sizes().vec(),
                              storage.const_data_ptr(), storage.nbytes()});
  }
  return result;
}

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors, const SafetensorsMetadata& metadata) {
  write_safetensors(path, tensor_entries(tensors).entries, metadata);
}

namespace {

/// A differentiable cast whose result already exists.
at::Tensor from_copy(const at::Tensor& parameter, const at::Tensor& copy) {
  return differentiable(
      {parameter}, [&](std::vector<at::Tensor>&) { return copy.variable_data(); },
      [](const BackwardCall& call) -> std::vector<at::Tensor> { return {call.gradient.to(at::kFloat)}; });
}

}  // namespace

at::Tensor as_autocast(const at::Tensor& parameter, const WeightCopy& copy) {
  if (!copy->defined() || autocast_type(parameter.device().type()) != copy->scalar_type()) return parameter;
  return at::GradMode::is_enabled() ? from_copy(parameter, *copy) : *copy;
}

}  // namespace trainopt
