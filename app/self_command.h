// Runs this program as a user would, in a process of its own.
#pragma once

#include "base/error.h"
#include "base/run_command.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainopt {

/// `words`: the command and its arguments. With several ranks it starts under `trainopt launch`. Its output goes to
/// files in `folder`, which must exist.
CommandEnd run_self(const std::vector<std::string>& words, const std::filesystem::path& folder, int64_t ranks = 1,
                    const CommandLimits& limits = {});

/// For the command that needed this one: the code of its failure, if it is a documented one.
ExitCode exit_code_of(const CommandEnd& end);

/// "failed (exit code 5): …", with the last line that the command wrote to standard error.
std::string failure_of(const CommandEnd& end);

}  // namespace trainopt
