#include "model/tensor_file.h"

#include "base/error.h"

#include <ATen/ATen.h>

#include <cstring>

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
  throw BrokenInvariant(fmt::format("tensor {} has the type {}, which safetensors files do not hold", name, at::toString(type)));
}

}  // namespace

NamedTensors load_tensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  NamedTensors tensors;
  for (const auto& entry : file.entries()) {
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(type_of(entry.dtype)));
    if (entry.bytes > 0) std::memcpy(tensor.mutable_data_ptr(), entry.data, entry.bytes);  // a file's data need not be aligned
    tensors.emplace_back(entry.name, std::move(tensor));
  }
  return tensors;
}

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors, const SafetensorsMetadata& metadata) {
  std::vector<at::Tensor> copies;  // keeps the bytes alive while they are written
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor& copy = copies.emplace_back(tensor.detach().to(at::kCPU).contiguous());
    entries.push_back({name, word_of_type(copy.scalar_type(), name), copy.sizes().vec(), copy.const_data_ptr(), copy.nbytes()});
  }
  write_safetensors(path, entries, metadata);
}

}  // namespace trainopt
