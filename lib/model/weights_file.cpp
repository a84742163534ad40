#include "model/weights_file.h"

#include "base/error.h"
#include "device/autocast.h"
#include "device/differentiable.h"
#include "device/tensor.h"
#include "model/model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <set>

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

constexpr std::string_view kOptionalEnding =
    ".num_batches_tracked";  // files from before PyTorch 0.4.1 lack it, and no result depends on it
constexpr std::string_view kPositions = ".pos_embedding";
constexpr size_t kDifferencesShown = 10;

using FileTensors = std::map<std::string, at::Tensor>;  ///< by the model's names

/// How the file's tensors differ from the model's.
struct Differences {
  std::vector<std::string> texts;
  bool only_in_head = true;
};

std::string describe_tensor(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

std::string describe_difference(const std::string& name, const at::Tensor& file, const at::Tensor& model) {
  std::string text = fmt::format("{} is {} and not {}", name, describe_tensor(file), describe_tensor(model));
  if (name.ends_with(kPositions) && file.dim() == model.dim())
    text += fmt::format(" (the file is for images of {} patches, and those of the data have {})", file.size(1) - 1,
                        model.size(1) - 1);
  return text;
}

/// bfloat16 values become float32 unchanged.
bool can_load(const at::Tensor& file, const at::Tensor& model) {
  const bool widens = file.scalar_type() == at::kBFloat16 && model.scalar_type() == at::kFloat;
  return file.sizes() == model.sizes() && (file.scalar_type() == model.scalar_type() || widens);
}

FileTensors read_weights(const std::filesystem::path& path, const NameOfFile& name_of_file) {
  FileTensors file;
  for (const auto& [name, tensor] : load_tensors(path)) {
    const auto known = name_of_file(name);
    if (!known) continue;
    const auto [entry, is_new] = file.emplace(*known, tensor);
    const at::Tensor& other = entry->second;
    if (!is_new && !(other.scalar_type() == tensor.scalar_type() && at::equal(other, tensor)))
      throw UserError(fmt::format("the weights in {} hold {} twice, and the two differ: {} as {}, {}", path.string(),
                                  *known, describe_tensor(tensor), name, describe_tensor(other)),
                      ExitCode::checkpoint);
  }
  return file;
}

/// In the model's order. `head`: the index of the last unit.
Differences differences_between(const std::vector<StateEntry>& entries, const FileTensors& file, size_t head) {
  Differences differences;
  std::set<std::string> known;
  for (const auto& entry : entries) {
    known.insert(entry.name);
    const size_t before = differences.texts.size();
    const auto found = file.find(entry.name);
    if (found == file.end()) {
      if (!entry.name.ends_with(kOptionalEnding)) differences.texts.push_back(fmt::format("{} is missing", entry.name));
    } else if (!can_load(found->second, entry.tensor)) {
      differences.texts.push_back(describe_difference(entry.name, found->second, entry.tensor));
    }
    differences.only_in_head &= differences.texts.size() == before || entry.unit == head;
  }
  for (const auto& [name, tensor] : file)
    if (!known.contains(name)) {
      differences.texts.push_back(fmt::format("{} is unexpected", name));
      differences.only_in_head = false;
    }
  return differences;
}

[[noreturn]] void refuse(const std::filesystem::path& path, Differences differences) {
  auto& texts = differences.texts;
  const size_t total = texts.size();
  const std::string more = total > kDifferencesShown ? fmt::format("; and {} more", total - kDifferencesShown) : "";
  texts.resize(std::min(total, kDifferencesShown));
  throw UserError(
      fmt::format("the weights in {} do not fit the model, {} difference{}: {}{}{}", path.string(), total,
                  total == 1 ? "" : "s", fmt::join(texts, "; "), more,
                  differences.only_in_head ? "; model.replace_head: true starts with a new last layer" : ""),
      ExitCode::checkpoint);
}

}  // namespace

void Model::load_weights(const std::filesystem::path& path, bool keeps_head) {
  TRAINOPT_CHECK(!device_.is_meta());
  const size_t head = units_.size() - 1;
  FileTensors file = read_weights(path, name_of_file_);
  for (const auto& entry : entries_)
    if (const auto found = file.find(entry.name); entry.transposed_in_files && found != file.end())
      found->second = found->second.dim() == 2 ? found->second.t() : found->second;
  if (keeps_head)
    for (const auto& entry : entries_)
      if (entry.unit == head) file.insert_or_assign(entry.name, entry.tensor);
  auto differences = differences_between(entries_, file, head);
  if (!differences.texts.empty()) refuse(path, std::move(differences));
  const at::NoGradGuard no_grad;
  for (auto& entry : entries_)
    if (const auto found = file.find(entry.name); entry.held && found != file.end()) entry.tensor.copy_(found->second);
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
