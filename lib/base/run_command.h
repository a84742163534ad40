// Runs another program and waits for it.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

namespace trainopt {

struct CommandEnd {
  int code = 0;  ///< the exit code; 128 + the signal that ended it
  std::string output, errors;
};

/// `words`: the program's file and its arguments. Standard output and error go to files in `folder`, which must exist.
/// If `stop` becomes a signal's number, the program gets that signal, and is waited for. It ends if this process does.
/// Throws UserError if it cannot be started.
CommandEnd run_command(const std::vector<std::string>& words, const std::filesystem::path& folder,
                       const std::atomic<int>* stop = nullptr);

}  // namespace trainopt
