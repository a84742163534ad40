#include "metrics/resumed_lines.h"

#include "base/files.h"
#include "base/log.h"

#include <charconv>
#include <optional>
#include <string_view>

namespace trainopt {
namespace {

constexpr std::string_view kJsonStart = "{\"step\":";
constexpr size_t kPieceBytes = size_t{1} << 20;  // records of a long run are larger than memory should be

/// nullopt for a header and for any other line without a step.
std::optional<int64_t> step_of(std::string_view line) {
  if (line.starts_with(kJsonStart)) line.remove_prefix(kJsonStart.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  return error == std::errc() ? std::optional(step) : std::nullopt;
}

/// Bytes of the lines to keep. `repeated`: the line behind them is the checkpoint's own step, which the last process
/// recorded only because it was its last.
int64_t end_of_kept(File& file, int64_t step, int64_t every_n_steps, bool& repeated) {
  int64_t kept = 0;
  std::string text;  // from `kept` on
  for (std::string piece(kPieceBytes, '\0'); const size_t got = file.read(piece.data(), piece.size());) {
    text.append(piece, 0, got);
    size_t begin = 0;
    for (size_t newline; (newline = text.find('\n', begin)) != std::string::npos; begin = newline + 1) {
      const auto found = step_of(std::string_view(text).substr(begin, newline - begin));
      const bool later = found && *found > step;  // lines are in the order of steps
      const bool only_last = found && *found == step && step > 1 && step % every_n_steps != 0;
      repeated = only_last && kept + static_cast<int64_t>(newline) + 1 == file.size();
      if (later || only_last) return kept + static_cast<int64_t>(begin);
    }
    kept += static_cast<int64_t>(begin);
    text.erase(0, begin);
  }
  return kept;  // without a torn last line
}

/// Appends what follows `from` to what earlier resumes from this step have put there.
void keep_aside(const File& file, int64_t from, int64_t step) {
  auto aside = file.path();
  aside += fmt::format(".before-step-{:08}", step);
  File kept = File::append_to(aside);
  std::string piece(kPieceBytes, '\0');
  char last = '\n';
  for (size_t got; (got = file.read_at(from, piece.data(), piece.size())) > 0; from += static_cast<int64_t>(got)) {
    kept.append(piece.data(), got);
    last = piece[got - 1];
  }
  if (last != '\n') kept.append("\n", 1);
  kept.sync();
  kept.close();
  sync_folder(folder_of(aside));  // before the lines leave their file
  log_info("the lines of {} after step {} are kept in {}", file.path().filename().string(), step,
           aside.filename().string());
}

}  // namespace

void remove_lines_after(const std::filesystem::path& path, int64_t step, int64_t every_n_steps) {
  if (kind_of(path) == PathKind::absent) return;
  File file = File::open(path, ExitCode::storage);
  bool repeated = false;
  const int64_t kept = end_of_kept(file, step, every_n_steps, repeated);
  if (kept == file.size()) return;
  if (!repeated) keep_aside(file, kept, step);
  File whole = File::append_to(path);
  whole.truncate(kept);
  whole.sync();
  whole.close();
}

}  // namespace trainopt
