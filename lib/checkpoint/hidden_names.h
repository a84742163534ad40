// Names of folders and links that are not, or no longer, checkpoints. They begin with a dot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainopt {

/// The step of "step-00001234"; nullopt for all other names.
std::optional<int64_t> step_of_name(std::string_view name);

/// ".step-00001234.<pid>.<random>": not yet committed, or renamed for removal.
std::string hidden_name(int64_t step);
bool is_hidden_name(std::string_view name);

/// ".replaced.step-00001234": temporary name of the old checkpoint where two folders cannot be exchanged atomically.
std::string replaced_name(int64_t step);
std::optional<int64_t> step_of_replaced_name(std::string_view name);

/// Whether this is point_link()'s temporary link for `latest`.
bool is_temporary_link(std::string_view name);

}  // namespace trainopt
