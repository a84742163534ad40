#include "app/starter/environment.h"

#include "app/starter/torch.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace trainopt::starter {
namespace fs = std::filesystem;
namespace {

/// 13 for python3.13, -1 for another name.
int minor_version(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (name.rfind("python3", 0) != 0) return -1;
  return name.size() > 8 && name[7] == '.' ? std::atoi(name.c_str() + 8) : 0;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The value of a key in pyvenv.cfg, which has lines `key = value`.
std::string setting(const fs::path& file, const std::string& key) {
  for (const std::string& line : split(text_of(file), '\n'))
    if (line.rfind(key + " = ", 0) == 0) return line.substr(key.size() + 3);
  return "";
}

/// The folder above `inside` that has a pyvenv.cfg; empty outside a virtual environment.
fs::path virtual_environment(fs::path inside) {
  std::error_code error;
  for (; inside != inside.root_path(); inside = inside.parent_path())
    if (fs::exists(inside / "pyvenv.cfg", error)) return inside;
  return {};
}

/// <prefix> of the first <prefix>/bin/python3 in PATH; empty without one.
fs::path prefix_in_path() {
  std::error_code error;
  for (const std::string& folder : split(variable("PATH"), ':'))
    if (!folder.empty() && fs::exists(fs::path(folder) / "python3", error)) return fs::path(folder).parent_path();
  return {};
}

}  // namespace

std::vector<fs::path> package_folders(const fs::path& prefix) {
  std::vector<fs::path> pythons, folders;
  std::error_code error;
  for (const char* lib : {"lib", "lib64", "local/lib"})
    for (const auto& entry : fs::directory_iterator(prefix / lib, error))
      if (minor_version(entry.path()) >= 0) pythons.push_back(entry.path());
  std::sort(pythons.begin(), pythons.end(), [](const fs::path& a, const fs::path& b) {
    return std::pair(-minor_version(a), a) < std::pair(-minor_version(b), b);
  });
  for (const auto& python : pythons)
    for (const char* packages : {"site-packages", "dist-packages"})
      if (fs::is_directory(python / packages, error)) folders.push_back(python / packages);
  folders.push_back(prefix);
  return folders;
}

std::vector<fs::path> usable_package_folders(const fs::path& prefix) {
  std::vector<fs::path> prefixes{prefix};
  if (const fs::path environment = virtual_environment(prefix); environment.empty()) {
    if (const std::string home = variable("HOME"); !home.empty()) prefixes.push_back(fs::path(home) / ".local");
    if (const fs::path python = prefix_in_path(); !python.empty()) {
      prefixes.push_back(python);
      // Debian's Python also has the packages in /usr/local.
      if (python == "/usr" || python == "/") prefixes.push_back("/usr/local");
    }
  } else {
    if (environment != prefix) prefixes.push_back(environment);
    const fs::path file = environment / "pyvenv.cfg";
    if (setting(file, "include-system-site-packages") == "true")
      prefixes.push_back(fs::path(setting(file, "home")).parent_path());
  }
  std::vector<fs::path> folders;
  for (const auto& each : prefixes)
    for (auto& folder : package_folders(each))
      if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(std::move(folder));
  return folders;
}

}  // namespace trainopt::starter
