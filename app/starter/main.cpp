// The `trainopt` that pip installs. It finds the libtorch of the environment that it is in, puts its folder in
// LD_LIBRARY_PATH and becomes the program, so that signals and exit codes are the program's. LD_LIBRARY_PATH is what
// the program's own children inherit when they start /proc/self/exe; started through ld.so, that would be ld.so.
#include "app/starter/environment.h"
#include "app/starter/torch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace trainopt::starter {
namespace fs = std::filesystem;
namespace {

/// The program of the same name: in an unpacked package beside bin/, in an environment in one of its packages.
fs::path find_program(const fs::path& prefix, const fs::path& name) {
  std::error_code error;
  if (const fs::path beside = prefix / "libexec" / name; fs::exists(beside, error)) return beside;
  for (const auto& folder : package_folders(prefix))
    if (const fs::path installed = folder / "trainopt/libexec" / name; fs::exists(installed, error)) return installed;
  throw std::runtime_error(
      "the program itself is missing; install trainopt again with pip install --force-reinstall; "
      "looked in " +
      prefix.string());
}

Torch named_torch(const fs::path& folder) {
  const auto torch = read_torch(folder);
  if (!torch)
    throw std::runtime_error("TRAINOPT_TORCH must be the folder of the Python package torch, which has version.py: " +
                             folder.string());
  if (const std::string problem = problem_with(*torch); !problem.empty()) throw std::runtime_error(problem);
  return *torch;
}

/// The first torch that fits; if none does, says what is wrong with the first.
Torch find_torch(const fs::path& prefix, const fs::path& beside) {
  if (const char* named = std::getenv("TRAINOPT_TORCH"); named && *named) return named_torch(fs::absolute(named));
  std::string problem, looked_in;
  std::vector<fs::path> folders = usable_package_folders(prefix);
  folders.erase(std::remove(folders.begin(), folders.end(), beside), folders.end());
  folders.insert(folders.begin(), beside);
  for (const auto& folder : folders) {
    looked_in += (looked_in.empty() ? "" : ", ") + folder.string();
    const auto torch = read_torch(folder / "torch");
    if (!torch) continue;
    const std::string found = problem_with(*torch);
    if (found.empty()) return *torch;
    if (problem.empty()) problem = found;
  }
  if (!problem.empty()) throw std::runtime_error(problem);
  throw std::runtime_error(std::string("torch was not found; install it with ") + kInstallTorch +
                           " in the same environment, or set TRAINOPT_TORCH to its folder; looked in " + looked_in);
}

void add_library_folders(const Torch& torch) {
  std::string path;
  for (const auto& folder : library_folders(torch)) {
    if (folder.string().find_first_of(":;$") != std::string::npos)
      throw std::runtime_error("the path of torch must not contain ':', ';' or '$', which the loader takes apart: " +
                               folder.string());
    path += (path.empty() ? "" : ":") + folder.string();
  }
  // An empty entry would mean the current folder.
  if (const char* before = std::getenv("LD_LIBRARY_PATH"); before && *before) path += std::string(":") + before;
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
}

[[noreturn]] void become_program(char** arguments) {
  const fs::path self = fs::read_symlink("/proc/self/exe"), prefix = self.parent_path().parent_path();
  const fs::path program = find_program(prefix, self.filename());
  add_library_folders(find_torch(prefix, program.parent_path().parent_path().parent_path()));
  ::execv(program.c_str(), arguments);
  throw std::runtime_error(std::string("cannot start the program: ") + std::strerror(errno) + ": " + program.string());
}

}  // namespace
}  // namespace trainopt::starter

int main(int, char** arguments) {
  try {
    trainopt::starter::become_program(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainopt: %s\n", error.what());
    return 2;
  }
}
