#include "metrics/resumed_lines.h"

#include "base/files.h"

#include <charconv>
#include <optional>
#include <string_view>

namespace trainopt {
namespace {

constexpr std::string_view kJsonStart = "{\"step\":";

/// nullopt for a header and for any other line without a step.
std::optional<int64_t> step_of(std::string_view line) {
  if (line.starts_with(kJsonStart)) line.remove_prefix(kJsonStart.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  return error == std::errc() ? std::optional(step) : std::nullopt;
}

}  // namespace

void remove_lines_after(const std::filesystem::path& file, int64_t step, int64_t every_n_steps) {
  if (!std::filesystem::exists(file)) return;
  const std::string all = read_file(file, ExitCode::storage);
  size_t end_of_kept = 0;
  for (size_t begin = 0; begin < all.size();) {
    const size_t newline = all.find('\n', begin);
    if (newline == std::string::npos) break;
    const auto found = step_of(std::string_view(all).substr(begin, newline - begin));
    if (found && *found > step) break;  // lines are in the order of steps
    if (found && *found == step && step > 1 && step % every_n_steps != 0) break;
    end_of_kept = begin = newline + 1;
  }
  if (end_of_kept < all.size()) write_file(file, std::string_view(all).substr(0, end_of_kept));
}

}  // namespace trainopt
