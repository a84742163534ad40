// What a process is given besides its recipe: the environment's variables, and how to write to the console.
#pragma once

#include "train/machine.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

using Environment = std::map<std::string, std::string>;

/// The process's environment. Nothing else reads it.
Environment read_environment(char** variables);

/// CUDA_VISIBLE_DEVICES, for the message about GPUs that it hides.
std::optional<std::string> visible_devices(const Environment& environment);
/// This machine, as this process may use it, with the environment variables that its data needs.
Machine this_machine(const Environment& environment);

struct OutputOptions {
  bool quiet = false, no_color = false;
  bool json = false;      ///< one JSON object is all that standard output gets; with quiet
  bool silent = false;    ///< not even the result, which another command prints; with quiet
  bool launched = false;  ///< by a launcher: mpirun gives its ranks a terminal even if its own output is a file
  std::string log_level = "info";
  std::vector<std::string> words = {};  ///< the command line without the program's name
  int64_t own_launcher_ranks = 1;       ///< ranks that `trainopt launch` started
};

/// Whether standard output is a terminal on which a person may see colours and a progress line.
bool colored_output(const OutputOptions& output);
/// Whether standard error is a terminal with a line that can be drawn anew.
bool has_status_line(const OutputOptions& output);

}  // namespace trainopt
