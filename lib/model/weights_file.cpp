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
constexpr size_t kDifferencesShown = 10;  ///< on each side

using FileTensors = std::map<std::string, at::Tensor>;  ///< by the model's names

/// How the file's tensors differ from the model's.
struct Differences {
  std::vector<std::string> of_model;    ///< tensors that are missing or do not fit
  std::vector<std::string> unexpected;  ///< tensors that the model does not have
  bool only_in_head = true;
  bool empty() const { return of_model.empty() && unexpected.empty(); }
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

/// Values of 16 bits become float32 unchanged.
bool can_load(const at::Tensor& file, const at::Tensor& model) {
  const bool is_short = file.scalar_type() == at::kBFloat16 || file.scalar_type() == at::kHalf;
  const bool widens = is_short && model.scalar_type() == at::kFloat;
  return file.sizes() == model.sizes() && (file.scalar_type() == model.scalar_type() || widens);
}

/// "network." of "network.head.weight"; empty: no module holds it.
std::string first_module(const std::string& name) { return name.substr(0, name.find('.') + 1); }

/// The module that all names are in; empty: there is none.
std::string common_module(const std::set<std::string>& names) {
  if (names.empty()) return {};
  const std::string first = first_module(*names.begin());
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(first); })
             ? first
             : std::string();
}

int64_t shared_names(const std::set<std::string>& some, const std::set<std::string>& others) {
  return std::count_if(some.begin(), some.end(), [&](const std::string& name) { return others.contains(name); });
}

/// The name without DistributedDataParallel's and torch.compile's before it.
std::string without_wrappers(std::string name) {
  constexpr std::array<std::string_view, 2> kWrappers = {"module.", "_orig_mod."};
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view wrapper : kWrappers)
      if (name.starts_with(wrapper)) {
        name.erase(0, wrapper.size());
        again = true;
      }
  }
  return name;
}

[[noreturn]] void refuse_names(const std::filesystem::path& path, const std::set<std::string>& model,
                               const std::set<std::string>& file) {
  const auto listed = [](const std::set<std::string>& names) {
    std::vector<std::string> shown(names.begin(),
                                   std::next(names.begin(), std::min<int64_t>(kDifferencesShown, std::ssize(names))));
    const size_t more = names.size() - shown.size();
    return fmt::format("{}{}", fmt::join(shown, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
  };
  throw UserError(
      fmt::format("the weights in {} are not of this model: no name is in both; the model has {}; the file has {}",
                  path.string(), listed(model), file.empty() ? "none" : listed(file)),
      ExitCode::checkpoint);
}

/// How names in the file become the model's. A wrapper puts a module's name before all of them, in the model (such as
/// one that returns the logits alone) or in the file (DistributedDataParallel, torch.compile). The change that makes
/// most names the model's is the right one. Throws UserError with names of both if they have none in common.
NameOfFile names_with_wrapper(const std::filesystem::path& path, const std::set<std::string>& model,
                              const std::set<std::string>& file) {
  const std::string of_model = common_module(model), of_file = common_module(file);
  const auto without = [of_file](const std::string& name) {
    return name.starts_with(of_file) ? name.substr(of_file.size()) : name;
  };
  const std::vector<NameOfFile> changes = {
      [](const std::string& name) { return std::optional(name); },
      [](const std::string& name) { return std::optional(without_wrappers(name)); },
      [=](const std::string& name) { return std::optional(without(name)); },
      [=](const std::string& name) { return std::optional(of_model + name); },
      [=](const std::string& name) { return std::optional(of_model + without_wrappers(name)); },
      [=](const std::string& name) { return std::optional(of_model + without(name)); },
  };
  const NameOfFile* best = nullptr;
  int64_t most = 0;
  for (const NameOfFile& change : changes) {
    std::set<std::string> changed;
    for (const std::string& name : file) changed.insert(*change(name));
    if (const int64_t shared = shared_names(model, changed); shared > most) {
      most = shared;
      best = &change;
    }
  }
  if (best == nullptr) refuse_names(path, model, file);
  return *best;
}

FileTensors read_weights(const std::filesystem::path& path, const NameOfFile& name_of_file,
                         const std::vector<StateEntry>& entries) {
  const NamedTensors tensors = load_tensors(path);
  std::set<std::string> of_model, of_file;
  for (const StateEntry& entry : entries) of_model.insert(entry.name);
  for (const auto& [name, tensor] : tensors)
    if (const auto known = name_of_file(name)) of_file.insert(*known);
  const NameOfFile unwrapped = names_with_wrapper(path, of_model, of_file);
  FileTensors file;
  for (const auto& [name, tensor] : tensors) {
    auto known = name_of_file(name);
    if (known) known = name_of_file(*unwrapped(*known));  // again, for the other names of tied weights
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

/// The differences have the model's order.
Differences differences_between(const std::vector<StateEntry>& entries, const FileTensors& file) {
  Differences differences;
  std::set<std::string> known;
  for (const auto& entry : entries) {
    known.insert(entry.name);
    const size_t before = differences.of_model.size();
    const auto found = file.find(entry.name);
    if (found == file.end()) {
      if (!entry.name.ends_with(kOptionalEnding))
        differences.of_model.push_back(fmt::format("{} is missing", entry.name));
    } else if (!can_load(found->second, entry.tensor)) {
      differences.of_model.push_back(describe_difference(entry.name, found->second, entry.tensor));
    }
    differences.only_in_head &= differences.of_model.size() == before || entry.in_head;
  }
  for (const auto& [name, tensor] : file)
    if (!known.contains(name)) {
      differences.unexpected.push_back(fmt::format("{} is unexpected", name));
      differences.only_in_head = false;
    }
  return differences;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const Differences& differences) {
  std::vector<std::string> shown;
  for (const auto* side : {&differences.of_model, &differences.unexpected}) {
    shown.insert(shown.end(), side->begin(),
                 std::next(side->begin(), std::min<int64_t>(kDifferencesShown, std::ssize(*side))));
    if (side->size() > kDifferencesShown) shown.push_back(fmt::format("and {} more", side->size() - kDifferencesShown));
  }
  const size_t total = differences.of_model.size() + differences.unexpected.size();
  throw UserError(fmt::format("the weights in {} do not fit the model, {} difference{}: {}{}", path.string(), total,
                              total == 1 ? "" : "s", fmt::join(shown, "; "),
                              differences.only_in_head
                                  ? "; model.replace_head: true starts with a new last layer of model.num_classes"
                                  : ""),
                  ExitCode::checkpoint);
}

}  // namespace

void Model::load_weights(const std::filesystem::path& path, bool keeps_head) {
  TRAINOPT_CHECK(!device_.is_meta());
  FileTensors file = read_weights(path, name_of_file_, entries_);
  for (const auto& entry : entries_)
    if (const auto found = file.find(entry.name); entry.transposed_in_files && found != file.end())
      found->second = found->second.dim() == 2 ? found->second.t() : found->second;
  if (keeps_head)
    for (const auto& entry : entries_)
      if (entry.in_head) file.insert_or_assign(entry.name, entry.tensor);
  const Differences differences = differences_between(entries_, file);
  if (!differences.empty()) refuse(path, differences);
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
