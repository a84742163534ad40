// Names of what is not a checkpoint: not yet, or no longer. They begin with a dot, so that nothing lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainopt {

/// The step of "step-00001234"; nullopt for all other names.
std::optional<int64_t> step_of_name(std::string_view name);

/// ".step-00001234.<pid>.<random>": written and not committed, or renamed to be removed.
std::string hidden_name(int64_t step);
bool is_hidden_name(std::string_view name);

/// ".replaced.step-00001234": where two folders cannot be exchanged, the old one until the new one has its name.
std::string aside_name(int64_t step);
std::optional<int64_t> step_of_aside_name(std::string_view name);

/// point_link's temporary link for `latest`.
bool is_temporary_link(std::string_view name);

}  // namespace trainopt
