#include "app/starter/torch.h"

#include <algorithm>
#include <cstdio>

namespace trainopt::starter {
namespace fs = std::filesystem;
namespace {

/// The string in the line `name = '...'` or `name: type = '...'`; empty for None or no such line.
std::string python_string(const std::string& text, const std::string& name) {
  for (const std::string& words : split(text, '\n')) {
    if (words.rfind(name, 0) != 0 || words.find_first_of(" :=", name.size()) != name.size()) continue;
    const size_t open = words.find_first_of("'\"", words.find('=')), close = words.find_last_of("'\"");
    return open < close ? words.substr(open + 1, close - open - 1) : "";
  }
  return "";
}

bool starts_with(const std::string& text, const std::string& beginning) { return text.rfind(beginning, 0) == 0; }

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
  }
  return parts;
}

std::string text_of(const fs::path& file) {
  std::string text;
  if (std::FILE* stream = std::fopen(file.c_str(), "rb")) {
    char part[4096];
    for (size_t length; (length = std::fread(part, 1, sizeof part, stream)) > 0;) text.append(part, length);
    std::fclose(stream);
  }
  return text;
}

std::optional<Torch> read_torch(const fs::path& folder) {
  const std::string text = text_of(folder / "version.py");
  Torch torch{folder, python_string(text, "__version__"), python_string(text, "cuda")};
  return torch.version.empty() ? std::nullopt : std::optional(torch);
}

std::string problem_with(const Torch& torch) {
  const std::string replace = "replace torch with: pip install --force-reinstall 'torch==" TRAINOPT_TORCH
                              ".*'; found " +
                              torch.version + " in " + torch.folder.string();
  if (!starts_with(torch.version, TRAINOPT_TORCH ".")) {
    const std::string minor = torch.version.substr(0, torch.version.find('.', torch.version.find('.') + 1));
    return "this trainopt was built for torch " TRAINOPT_TORCH ", and " + torch.version +
           " is installed; install the wheel for " + minor + " if there is one, or " + replace;
  }
  // Without CUDA it serves jobs on the CPU; the program itself says so on a machine with a GPU.
  if (!torch.cuda.empty() && !starts_with(torch.cuda, TRAINOPT_CUDA "."))
    return "this trainopt was built for CUDA " TRAINOPT_CUDA ", and the installed torch is for CUDA " + torch.cuda +
           "; " + replace;
  return "";
}

std::vector<fs::path> library_folders(const Torch& torch) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& package : fs::directory_iterator(torch.folder.parent_path() / "nvidia", error))
    if (fs::is_directory(package.path() / "lib", error)) folders.push_back(package.path() / "lib");
  std::sort(folders.begin(), folders.end());
  folders.insert(folders.begin(), torch.folder / "lib");
  return folders;
}

}  // namespace trainopt::starter
