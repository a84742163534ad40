#include "base/error.h"
#include "device/tensor.h"
#include "model/model.h"

#include <algorithm>
#include <map>
#include <set>

namespace trainopt {
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

}  // namespace trainopt
