// trainopt checkpoint verify|show|diff: inspects checkpoints and weight files.
#include "app/commands.h"
#include "base/print.h"
#include "base/units.h"
#include "device/tensor.h"
#include "train/checkpoint/checkpoint_files.h"

#include <CLI/CLI.hpp>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

/// The checkpoints that a path stands for: all in a run directory or in its checkpoints folder, newest first, otherwise
/// the path itself.
std::vector<fs::path> checkpoints_of(const fs::path& path) {
  for (const auto& root : {path / "checkpoints", path}) {
    std::vector<fs::path> folders;
    std::error_code none;
    if (fs::is_directory(root, none) && !fs::exists(root / "manifest.json", none))
      for (const auto& stored : list_checkpoints(root)) folders.push_back(stored.folder);
    if (!folders.empty()) return folders;
  }
  return {path};
}

int64_t bytes_of(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.bytes;
  return bytes;
}

int verify(const std::vector<std::string>& paths) {
  bool all_valid = true;
  for (const auto& path : paths)
    for (const auto& folder : checkpoints_of(path)) {
      try {
        const Manifest manifest = verify_checkpoint(folder);
        print_out("{}: valid; step {}, {}, {}\n", folder.string(), manifest.step,
                  counted(static_cast<int64_t>(manifest.files.size()), "file"),
                  human_bytes(static_cast<double>(bytes_of(manifest))));
      } catch (const UserError& error) {  // named recovery: the others are checked too
        print_out("{}: invalid\n", folder.string());
        print_error(error.what());
        all_valid = false;
      }
    }
  return static_cast<int>(all_valid ? ExitCode::done : ExitCode::checkpoint);
}

/// The tensors of a checkpoint or of a weights file.
ArchiveReader contents(const fs::path& path) {
  if (path.extension() == ".safetensors") return {path, load_tensors(path), Json::object()};
  return read_checkpoint(path);
}

/// "optimizer.momentum" for optimizer.momentum.conv1.weight; all weights of the model form one group.
std::string group_of(const std::string& name) {
  if (name.starts_with("model.")) return "model";
  const size_t second = name.starts_with("optimizer.") ? name.find('.', 10) : name.find('.');
  return name.substr(0, second);
}

Json describe(const ArchiveReader& archive) {
  Json json = {{"path", archive.where().string()}};
  if (!archive.values().empty()) {
    const Manifest manifest = open_checkpoint(archive.where());
    json["state"] = archive.values();
    json["versions"] = manifest.versions;
    for (const auto& [name, file] : manifest.files)
      json["files"][name] = {{"bytes", file.bytes}, {"xxh3", hex(file.xxh3)}};
  }
  json["groups"] = Json::object();
  for (const auto& [name, tensor] : archive.tensors()) {
    Json& group = json["groups"][group_of(name)];
    if (group.is_null()) group = {{"tensors", 0}, {"numbers", 0}, {"bytes", 0}};
    group["tensors"] = group["tensors"].get<int64_t>() + 1;
    group["numbers"] = group["numbers"].get<int64_t>() + tensor.numel();
    group["bytes"] = group["bytes"].get<int64_t>() + static_cast<int64_t>(tensor.nbytes());
  }
  return json;
}

std::string description_text(const Json& json) {
  std::string text = json["path"].get<std::string>() + "\n";
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {:<22} {}\n", name, value);
  };
  if (json.contains("state"))
    for (const auto& [name, value] : json["state"].items())
      line(name, value.is_string() ? value.get<std::string>() : json_text(value));
  if (json.contains("versions"))
    for (const auto& [name, version] : json["versions"].items())
      line("written by", fmt::format("{} {}", name, version.get<std::string>()));
  if (json.contains("files"))
    for (const auto& [name, file] : json["files"].items())
      line(name, fmt::format("{}, XXH3 {}", human_bytes(file["bytes"].get<double>()), file["xxh3"].get<std::string>()));
  for (const auto& [name, group] : json["groups"].items())
    line(name, fmt::format("{}, {} numbers, {}", counted(group["tensors"].get<int64_t>(), "tensor"),
                           with_commas(group["numbers"].get<int64_t>()), human_bytes(group["bytes"].get<double>())));
  return text;
}

/// How two tensors with the same name differ; null if they are equal.
Json difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type())
    return {{"first", shape_text(a)}, {"second", shape_text(b)}};
  const int64_t different = (a != b)
                                .logical_and((a != a).logical_and(b != b).logical_not())
                                .sum()
                                .item<int64_t>();  // two NaNs count as equal
  if (different == 0) return {};
  const double largest = (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
  return {{"numbers", different}, {"of", a.numel()}, {"largest", largest}};
}

Json compare(const ArchiveReader& a, const ArchiveReader& b) {
  Json json = {{"first", a.where().string()}, {"second", b.where().string()}, {"identical", false},
               {"same_tensors", 0},           {"tensors", Json::object()},    {"state", Json::object()}};
  int64_t same = 0;
  for (const auto& [name, tensor] : a.tensors()) {
    const auto other = b.tensors().find(name);
    const Json found = other == b.tensors().end() ? Json("only in the first") : difference(tensor, other->second);
    if (found.is_null())
      ++same;
    else
      json["tensors"][name] = found;
  }
  for (const auto& [name, tensor] : b.tensors())
    if (!a.tensors().contains(name)) json["tensors"][name] = "only in the second";
  for (const auto* one : {&a, &b})
    for (const auto& [name, value] : one->values().items()) {
      const Json first = a.values().contains(name) ? a.values()[name] : Json(),
                 second = b.values().contains(name) ? b.values()[name] : Json();
      if (first != second) json["state"][name] = {first, second};
    }
  json["same_tensors"] = same;
  json["identical"] = json["tensors"].empty() && json["state"].empty();
  return json;
}

std::string difference_text(const Json& json) {
  constexpr size_t kMaxShown = 20;
  const auto different = static_cast<int64_t>(json["tensors"].size());
  std::string text =
      fmt::format("{} the same, {} different\n", counted(json["same_tensors"].get<int64_t>(), "tensor"), different);
  size_t shown = 0;
  for (const auto& [name, found] : json["tensors"].items()) {
    if (++shown > kMaxShown) break;
    text += fmt::format(
        "  {:<40} {}\n", name,
        found.is_string() ? found.get<std::string>()
        : found.contains("numbers")
            ? fmt::format("{} of {} numbers, largest difference {:g}", with_commas(found["numbers"].get<int64_t>()),
                          with_commas(found["of"].get<int64_t>()), found["largest"].get<double>())
            : fmt::format("{} and {}", found["first"].get<std::string>(), found["second"].get<std::string>()));
  }
  if (different > static_cast<int64_t>(kMaxShown))
    text += fmt::format("  and {} more (--json lists all)\n", different - static_cast<int64_t>(kMaxShown));
  for (const auto& [name, values] : json["state"].items())
    text += fmt::format("  {:<40} {} and {}\n", name, json_text(values[0]), json_text(values[1]));
  return text;
}

}  // namespace

Command add_checkpoint_verify(CLI::App& checkpoint) {
  CLI::App* command = checkpoint.add_subcommand("verify", "Check every byte against the manifest; exit 0 or 4");
  const auto paths = std::make_shared<std::vector<std::string>>();
  command->add_option("path", *paths, "Checkpoints, or run directories to check all of theirs")
      ->required()
      ->type_name("PATH...");
  return [=](const CommandContext&) { return verify(*paths); };
}

Command add_checkpoint_show(CLI::App& checkpoint) {
  CLI::App* command = checkpoint.add_subcommand("show", "Show what a checkpoint or a safetensors file contains");
  const auto path = std::make_shared<std::string>();
  const auto as_json = std::make_shared<bool>(false);
  command->add_option("path", *path, "A checkpoint or a .safetensors file")->required()->type_name("PATH");
  command->add_flag("--json", *as_json, "Print one JSON object");
  return [=](const CommandContext&) {
    const Json json = describe(contents(*path));
    if (*as_json)
      print_json(json);
    else
      print_text(description_text(json));
    return 0;
  };
}

Command add_checkpoint_diff(CLI::App& checkpoint) {
  CLI::App* command = checkpoint.add_subcommand(
      "diff", "List the tensors and counts that differ between two checkpoints or safetensors files");
  const auto paths = std::make_shared<std::vector<std::string>>();
  const auto as_json = std::make_shared<bool>(false);
  command->add_option("path", *paths, "Two checkpoints or .safetensors files")
      ->required()
      ->expected(2)
      ->type_name("PATH PATH");
  command->add_flag("--json", *as_json, "Print one JSON object");
  return [=](const CommandContext&) {
    const Json json = compare(contents(paths->at(0)), contents(paths->at(1)));
    if (*as_json)
      print_json(json);
    else
      print_text(difference_text(json));
    return 0;
  };
}

}  // namespace trainopt
