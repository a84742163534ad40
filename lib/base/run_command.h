// Runs another program and waits for it.
#pragma once

#include "base/error.h"

#include <atomic>
#include <cstdint>
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

// Runs this program as a user would, in a process of its own.

/// `words`: the command and its arguments. With several ranks it starts under `trainopt launch`. Its output goes to
/// files in `folder`, which must exist.
CommandEnd run_self(const std::vector<std::string>& words, const std::filesystem::path& folder, int64_t ranks = 1,
                    const CommandLimits& limits = {});

/// For the command that needed this one: the code of its failure, if it is a documented one.
ExitCode exit_code_of(const CommandEnd& end);

/// "failed (exit code 5): …", with the last line that the command wrote to standard error.
std::string failure_of(const CommandEnd& end);

}  // namespace trainopt
