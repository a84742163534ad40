// Where pip installs packages: the folders in which the starter looks for its program and for torch.
#pragma once

#include <filesystem>
#include <vector>

namespace trainopt::starter {

/// The folders of packages below `prefix`, those of the newest Python first: lib/python3.x/site-packages and Debian's
/// dist-packages, then `prefix` itself, where `pip install --target` puts packages.
std::vector<std::filesystem::path> package_folders(const std::filesystem::path& prefix);

/// The folders of packages that a program in <prefix>/bin can use: those below `prefix`, then those that Python would
/// add. A virtual environment adds its base's only if it was created with --system-site-packages; all others add the
/// user's and those of the python3 in PATH.
std::vector<std::filesystem::path> usable_package_folders(const std::filesystem::path& prefix);

}  // namespace trainopt::starter
