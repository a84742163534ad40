// Commands of this program as a user's shell reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt {

/// The word, in quotes if a shell would read it differently.
std::string shell_quoted(const std::string& word);

/// "trainopt compare …": these arguments without some of the options, each with its value, and with more. With several
/// ranks "trainopt launch -n 2 -- compare …".
std::string shell_command(const std::vector<std::string>& words, const std::vector<std::string>& without = {},
                          const std::vector<std::string>& more = {}, int64_t ranks = 1);

}  // namespace trainopt
