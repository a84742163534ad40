#include "model/trained_weights.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "device/tensor.h"
#include "model/model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexEnding = ".safetensors.index.json";

[[noreturn]] void fail(const std::string& sentence) { throw UserError(sentence, ExitCode::checkpoint); }

/// The parts that the index names, in order.
std::vector<fs::path> parts_of(const fs::path& index) {
  constexpr int64_t kMaxBytes = int64_t{64} << 20;
  const Json json = parse_json(read_file(index, ExitCode::checkpoint, kMaxBytes), /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (json.is_discarded() || !json.is_object() || map == json.end() || !map->is_object() || map->empty())
    fail(fmt::format("{} is no index of safetensors files: it has no weight_map", index.string()));
  std::set<fs::path> parts;
  for (const auto& [name, part] : map->items()) {
    const fs::path file = part.is_string() ? part.get<std::string>() : "";
    if (file.empty() || file.filename() != file || file == ".." || file == ".")
      fail(fmt::format("{} names a file that is not in its folder, for {}: {}", index.string(), name, file.string()));
    parts.insert(index.parent_path() / file);
  }
  for (const fs::path& part : parts)
    if (!fs::is_regular_file(part))
      fail(fmt::format("there is no such file, which {} names: {}", index.string(), part.string()));
  return {parts.begin(), parts.end()};
}

std::vector<fs::path> files_of_folder(const fs::path& folder) {
  std::vector<fs::path> files, indexes;
  bool has_pickles = false;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kIndexEnding)) indexes.push_back(entry.path());
    if (name.ends_with(".safetensors")) files.push_back(entry.path());
    has_pickles |= name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
  }
  if (error) throw FileError("read", folder, error.value(), ExitCode::checkpoint);
  if (indexes.size() == 1) return parts_of(indexes.front());
  if (indexes.size() > 1)
    fail(fmt::format("model.weights: this folder has several indexes; name one of them: {}, {}", indexes[0].string(),
                     indexes[1].string()));
  for (const char* usual : {"model.safetensors", "weights.safetensors"})
    if (std::find(files.begin(), files.end(), folder / usual) != files.end()) return {folder / usual};
  if (files.size() == 1) return files;
  if (files.empty())
    fail(fmt::format("model.weights: no file here ends in .safetensors{}: {}",
                     has_pickles ? "; save the weights with safetensors.torch.save_file" : "", folder.string()));
  std::vector<std::string> names;
  for (const fs::path& file : files) names.push_back(file.filename().string());
  std::sort(names.begin(), names.end());
  fail(fmt::format("model.weights: this folder has several safetensors files and no index; name one of them: {} in {}",
                   fmt::join(names, ", "), folder.string()));
}

}  // namespace

std::vector<fs::path> weight_files(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return files_of_folder(path);
  if (!fs::is_regular_file(path, error)) fail("model.weights: there is no such file: " + path.string());
  return path.string().ends_with(kIndexEnding) ? parts_of(path) : std::vector{path};
}

namespace {

constexpr std::string_view kOptionalEnding =
    ".num_batches_tracked";  // files from before PyTorch 0.4.1 lack it, and no result depends on it
constexpr std::string_view kPositions = ".pos_embedding";
constexpr size_t kDifferencesShown = 10;  ///< on each side

/// What the header of a file says of a tensor.
struct TensorOfFile {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
};

std::vector<TensorOfFile> tensors_of(const std::vector<fs::path>& files) {
  std::vector<TensorOfFile> all;
  for (const fs::path& path : files) {
    const SafetensorsFile file(path);
    for (const auto& entry : file.entries()) all.push_back({entry.name, type_of_dtype(entry.dtype), entry.shape});
  }
  return all;
}

std::string describe(at::ScalarType type, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", at::toString(type), fmt::join(shape, ", "));
}
std::string describe(const TensorOfFile& tensor) { return describe(tensor.type, tensor.shape); }

// Names

using ChangeOfName = std::function<std::string(const std::string&)>;

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

std::string without(const std::string& beginning, const std::string& name) {
  return name.starts_with(beginning) ? name.substr(beginning.size()) : name;
}

constexpr std::array<std::string_view, 3> kInnerWrappers = {"_orig_mod.", "_checkpoint_wrapped_module.",
                                                            "_fsdp_wrapped_module."};

/// The name without what DistributedDataParallel, torch.compile and a trainer's module put before it, in any order.
std::string without_wrappers(std::string name) {
  constexpr std::array<std::string_view, 3> kWrappers = {"module.", "_orig_mod.", "model."};
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view wrapper : kWrappers)
      if (name.starts_with(wrapper)) {
        name.erase(0, wrapper.size());
        again = true;
      }
  }
  // Modules that were compiled or checkpointed one by one have such a part within their names.
  for (const std::string_view inner : kInnerWrappers)
    for (size_t at; (at = name.find(inner)) != std::string::npos;) name.erase(at, inner.size());
  return name;
}

std::string inner_wrapper_of(const std::string& name) {
  for (const std::string_view inner : kInnerWrappers)
    if (name.find(inner) != std::string::npos) return std::string(inner);
  return "";
}

/// How names in the file become the model's.
struct NameChange {
  NameOfFile name;
  std::string left_out;  ///< what is left out at the beginning of names; empty: nothing
  int64_t changed = 0;   ///< how many names begin so
};

[[noreturn]] void refuse_names(const fs::path& path, const std::set<std::string>& model,
                               const std::set<std::string>& file) {
  const auto listed = [](const std::set<std::string>& names) {
    std::vector<std::string> shown(names.begin(),
                                   std::next(names.begin(), std::min<int64_t>(kDifferencesShown, std::ssize(names))));
    const size_t more = names.size() - shown.size();
    return fmt::format("{}{}", fmt::join(shown, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
  };
  fail(fmt::format("the weights in {} are not of this model: no name is in both; the model has {}; the file has {}",
                   path.string(), listed(model), file.empty() ? "none" : listed(file)));
}

/// A wrapper puts a module's name before all others, in the model (such as one that returns the logits alone) or in the
/// file. The change that makes most names the model's is the right one. Throws UserError with names of both if they
/// have none in common.
NameChange change_of_names(const fs::path& path, const std::set<std::string>& model, const std::set<std::string>& file,
                           const NameOfFile& name_of_file) {
  std::set<std::string> unwrapped;
  for (const std::string& name : file) unwrapped.insert(without_wrappers(name));
  const std::string of_model = common_module(model), of_file = common_module(file), inner = common_module(unwrapped);
  const std::vector<ChangeOfName> left_out = {
      [](const std::string& name) { return name; }, without_wrappers,
      [=](const std::string& name) { return without(of_file, name); },
      [=](const std::string& name) { return without(inner, without_wrappers(name)); }};
  NameChange best;
  int64_t most = 0;
  for (const ChangeOfName& change : left_out)
    for (const std::string& added : {std::string(), of_model}) {
      const auto name_of_model = [=](const std::string& name) { return name_of_file(added + change(name)); };
      std::set<std::string> shared;
      for (const std::string& name : file)
        if (const auto known = name_of_model(name); known && model.contains(*known)) shared.insert(*known);
      if (std::ssize(shared) <= most) continue;
      most = std::ssize(shared);
      best = {.name = name_of_model, .left_out = "", .changed = 0};
      for (const std::string& name : file)
        if (const std::string kept = change(name); kept.size() < name.size()) {
          ++best.changed;
          best.left_out = name.ends_with(kept) ? name.substr(0, name.size() - kept.size()) : inner_wrapper_of(name);
        }
    }
  if (most == 0) refuse_names(path, model, file);
  return best;
}

// Shapes

std::vector<int64_t> reversed(at::IntArrayRef shape) { return {shape.rbegin(), shape.rend()}; }

/// Whether the file holds matrices as torch.nn.Linear does, out × in, which the model's usual files hold transposed.
/// Square ones do not tell.
bool has_linear_layout(const std::map<std::string, const TensorOfFile*>& file, const std::vector<StateEntry>& entries) {
  int64_t as_linear = 0, as_usual = 0;
  for (const StateEntry& entry : entries) {
    const auto found = file.find(entry.name);
    if (!entry.transposed_in_files || found == file.end() || entry.tensor.size(0) == entry.tensor.size(1)) continue;
    const std::vector<int64_t>& shape = found->second->shape;
    if (shape.size() != 2) continue;
    // By the ratio, so that files of another width are recognised, too, and compared as they are.
    as_linear += shape[0] * entry.tensor.size(1) == shape[1] * entry.tensor.size(0);
    as_usual += shape[0] * entry.tensor.size(0) == shape[1] * entry.tensor.size(1);
  }
  return as_linear > 0 && as_usual == 0;
}

/// Values of 16 bits become float32 unchanged.
bool can_widen(at::ScalarType file, at::ScalarType model) {
  return (file == at::kBFloat16 || file == at::kHalf) && model == at::kFloat;
}

/// How the file's tensors differ from the model's.
struct Differences {
  std::vector<std::string> of_model;    ///< tensors that are missing or do not fit
  std::vector<std::string> unexpected;  ///< tensors that the model does not have
  bool only_in_head = true;
};

std::string describe_difference(const StateEntry& entry, const TensorOfFile& file, const std::vector<int64_t>& shape) {
  const std::string own = file.name == entry.name ? "" : fmt::format(", in the file {},", file.name);
  std::string text = fmt::format("{}{} is {} and not {}", entry.name, own, describe(file),
                                 describe(entry.tensor.scalar_type(), shape));
  if (entry.name.ends_with(kPositions) && file.shape.size() == shape.size())
    text += fmt::format(" (the file is for images of {} patches, and those of the data have {})", file.shape[1] - 1,
                        shape[1] - 1);
  return text;
}

[[noreturn]] void refuse(const fs::path& path, const Differences& differences) {
  std::vector<std::string> shown;
  for (const auto* side : {&differences.of_model, &differences.unexpected}) {
    shown.insert(shown.end(), side->begin(),
                 std::next(side->begin(), std::min<int64_t>(kDifferencesShown, std::ssize(*side))));
    if (side->size() > kDifferencesShown) shown.push_back(fmt::format("and {} more", side->size() - kDifferencesShown));
  }
  const size_t total = differences.of_model.size() + differences.unexpected.size();
  std::string hint;
  if (path.filename().string().find("-of-") != std::string::npos)
    hint = "; this file is one of several parts: name their folder or their index";
  else if (differences.only_in_head)
    hint = "; model.replace_head: true starts with a new last layer of model.num_classes";
  fail(fmt::format("the weights in {} do not fit the model, {} difference{}: {}{}", path.string(), total,
                   total == 1 ? "" : "s", fmt::join(shown, "; "), hint));
}

class Fitting {
 public:
  Fitting(const fs::path& path, const std::vector<StateEntry>& entries, const NameOfFile& name_of_file)
      : path_(path), entries_(entries) {
    result_.files = weight_files(path);
    tensors_ = tensors_of(result_.files);
    find_names(name_of_file);
    is_linear_ = has_linear_layout(by_name_, entries_);
    if (is_linear_)
      result_.notes.push_back(fmt::format(
          "{} holds matrices as torch.nn.Linear does, out × in, instead of Conv1D's in × out, and they are read so",
          path_.string()));
  }

  FittedWeights fit(bool keeps_head) {
    Differences differences;
    for (size_t i = 0; i < entries_.size(); ++i) {
      const StateEntry& entry = entries_[i];
      const size_t before = differences.of_model.size();
      if (!(keeps_head && entry.in_head)) compare(entry, differences);
      differences.only_in_head &= differences.of_model.size() == before || entry.in_head;
    }
    for (const TensorOfFile* tensor : unexpected_) {
      differences.unexpected.push_back(fmt::format("{} is unexpected", tensor->name));
      differences.only_in_head = false;
    }
    if (!differences.of_model.empty() || !differences.unexpected.empty()) refuse(path_, differences);
    if (keeps_head)
      std::erase_if(result_.sources, [&](const auto& each) { return entries_[each.second.entry].in_head; });
    return std::move(result_);
  }

 private:
  void find_names(const NameOfFile& name_of_file) {
    std::map<std::string, size_t> of_model;
    std::set<std::string> model, file;
    for (size_t i = 0; i < entries_.size(); ++i) {
      of_model.emplace(entries_[i].name, i);
      model.insert(entries_[i].name);
    }
    for (const TensorOfFile& tensor : tensors_) file.insert(tensor.name);
    const NameChange change = change_of_names(path_, model, file, name_of_file);
    if (!change.left_out.empty())
      result_.notes.push_back(fmt::format("{} of {} names in {} have '{}', which is left out", change.changed,
                                          file.size(), path_.string(), change.left_out));
    for (const TensorOfFile& tensor : tensors_) {
      const auto known = change.name(tensor.name);
      if (!known) continue;
      const auto entry = of_model.find(*known);
      if (entry == of_model.end()) {
        unexpected_.push_back(&tensor);
        continue;
      }
      const auto [first, is_new] = by_name_.emplace(*known, &tensor);
      if (tensor.name == *known) first->second = &tensor;  // among tied weights the name that the model has
      if (!is_new && (first->second->type != tensor.type || first->second->shape != tensor.shape))
        refuse_twice(path_, *known, tensor.name, describe(tensor), describe(*first->second));
      result_.sources.emplace(tensor.name, FittedWeights::Source{entry->second, false});
    }
  }

  void compare(const StateEntry& entry, Differences& differences) {
    const auto found = by_name_.find(entry.name);
    if (found == by_name_.end()) {
      if (!entry.name.ends_with(kOptionalEnding)) differences.of_model.push_back(entry.name + " is missing");
      return;
    }
    const TensorOfFile& tensor = *found->second;
    const bool is_transposed = entry.transposed_in_files && !is_linear_;
    const std::vector<int64_t> shape = is_transposed ? reversed(entry.tensor.sizes()) : entry.tensor.sizes().vec();
    if (tensor.shape != shape ||
        (tensor.type != entry.tensor.scalar_type() && !can_widen(tensor.type, entry.tensor.scalar_type())))
      differences.of_model.push_back(describe_difference(entry, tensor, shape));
    for (auto& [name, source] : result_.sources)
      if (&entries_[source.entry] == &entry) source.is_transposed = is_transposed;
  }

 public:
  [[noreturn]] static void refuse_twice(const fs::path& path, const std::string& name, const std::string& own,
                                        const std::string& tensor, const std::string& other) {
    fail(fmt::format("the weights in {} hold {} twice, and the two differ: {} as {}, {}", path.string(), name, tensor,
                     own, other));
  }

 private:
  const fs::path& path_;
  const std::vector<StateEntry>& entries_;
  FittedWeights result_;
  std::vector<TensorOfFile> tensors_;
  std::map<std::string, const TensorOfFile*> by_name_;  ///< by the model's names
  std::vector<const TensorOfFile*> unexpected_;
  bool is_linear_ = false;
};

}  // namespace

FittedWeights fit_weights(const fs::path& path, const std::vector<StateEntry>& entries, const NameOfFile& name_of_file,
                          bool keeps_head) {
  return Fitting(path, entries, name_of_file).fit(keeps_head);
}

std::vector<std::string> Model::fit_weights(const fs::path& path, bool keeps_head) const {
  return trainopt::fit_weights(path, entries_, name_of_file_, keeps_head).notes;
}

void Model::load_weights(const fs::path& path, bool keeps_head) {
  TRAINOPT_CHECK(!device_.is_meta());
  const FittedWeights fitted = trainopt::fit_weights(path, entries_, name_of_file_, keeps_head);
  std::vector<at::Tensor> values(entries_.size());
  for (const fs::path& file : fitted.files)
    for (const auto& [name, tensor] : load_tensors(file)) {
      const auto source = fitted.sources.find(name);
      if (source == fitted.sources.end()) continue;
      at::Tensor& value = values[source->second.entry];
      if (value.defined() && !at::equal(value, tensor))
        Fitting::refuse_twice(path, entries_[source->second.entry].name, name,
                              describe(tensor.scalar_type(), tensor.sizes().vec()),
                              describe(value.scalar_type(), value.sizes().vec()));
      value = tensor;
    }
  const at::NoGradGuard no_grad;
  for (const auto& [name, source] : fitted.sources) {
    const StateEntry& entry = entries_[source.entry];
    if (!entry.held || !values[source.entry].defined()) continue;
    at::Tensor target = entry.tensor;
    target.copy_(source.is_transposed ? values[source.entry].t() : values[source.entry]);
  }
}

}  // namespace trainopt
