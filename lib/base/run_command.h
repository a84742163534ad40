// Runs another program and waits for it.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct CommandEnd {
  int code = 0;  ///< the exit code; 128 + the signal that ended it
  bool took_too_long = false;
  std::string output, errors;
};

struct CommandLimits {
  const std::atomic<int>* stop = nullptr;  ///< if it becomes a signal's number, the program gets that signal
  std::optional<double> seconds;           ///< after so long the program gets SIGTERM, and later SIGKILL
};

/// `words`: the program's file and its arguments. Standard output and error go to files in `folder`, which must exist.
/// Waits for the program, also after a limit. It ends if this process does. Throws UserError if it cannot be started.
CommandEnd run_command(const std::vector<std::string>& words, const std::filesystem::path& folder,
                       const CommandLimits& limits = {});

}  // namespace trainopt
