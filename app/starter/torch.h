// An installed PyTorch, as its files describe it. No Python is started.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt::starter {

struct Torch {
  std::filesystem::path folder;  ///< folder of the Python package torch
  std::string version;           ///< 2.11.0+cu130
  std::string cuda;              ///< 13.0; empty: built for the CPU only, or for GPUs of another maker
};

/// The whole file; empty if it cannot be read.
std::string text_of(const std::filesystem::path& file);

std::vector<std::string> split(const std::string& text, char separator);

/// Reads torch/version.py; null if `folder` is not the package torch.
std::optional<Torch> read_torch(const std::filesystem::path& folder);

/// Why the programs cannot run with this torch, and what to do, as one sentence; empty if they can.
std::string problem_with(const Torch& torch);

/// The folders of libtorch and of the CUDA libraries that were installed with it.
std::vector<std::filesystem::path> library_folders(const Torch& torch);

/// The command that installs the right torch.
inline constexpr auto kInstallTorch = "pip install 'torch==" TRAINOPT_TORCH ".*'";

}  // namespace trainopt::starter
