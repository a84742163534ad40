#include "model/tensor_file.h"

#include "base/error.h"
#include "device/tensor.h"

#include <array>
#include <bit>

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

at::ScalarType type_of(const std::string& dtype) {
  for (const auto& [word, type] : kTypes)
    if (dtype == word) return type;
  throw BrokenInvariant("the reader let an unknown dtype through: " + dtype);
}

std::string word_of_type(at::ScalarType type, const std::string& name) {
  for (const auto& [word, known] : kTypes)
    if (type == known) return word;
  throw BrokenInvariant(
      fmt::format("tensor {} has the type {}, which safetensors files cannot store", name, at::toString(type)));
}

}  // namespace

NamedTensors load_tensors(const std::filesystem::path& path, const std::optional<uint64_t>& xxh3) {
  const SafetensorsFile file(path);
  NamedTensors tensors;
  for (const auto& entry : file.entries())
    tensors.emplace_back(entry.name, at::empty(entry.shape, at::TensorOptions(type_of(entry.dtype))));
  const uint64_t hash = file.read([&](size_t entry) { return tensors[entry].second.mutable_data_ptr(); }).value();
  if (xxh3 && hash != *xxh3)
    throw UserError(fmt::format("{} was changed since it was saved: its hash is {}, and was {}", path.string(),
                                hex(hash), hex(*xxh3)),
                    ExitCode::checkpoint);
  return tensors;
}

std::optional<std::string> first_not_finite(const NamedTensors& tensors) {
  constexpr uint32_t kExponent = 0x7F800000;  // all ones: infinite or not a number
  for (const auto& [name, tensor] : tensors) {
    if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kBFloat16) continue;
    const at::Tensor on_host = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
    const float* values = on_host.const_data_ptr<float>();
    bool bad = false;
    for (int64_t i = 0; i < on_host.numel(); ++i) bad |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent;
    if (bad) return name;
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

}  // namespace trainopt
