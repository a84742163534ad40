#include "app/self_command.h"

#include "base/program_files.h"

#include <fmt/format.h>

namespace trainopt {
namespace {

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of("\n ");
  if (end == text.npos) return "";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == text.npos ? 0 : begin + 1, end - (begin == text.npos ? 0 : begin + 1) + 1);
}

}  // namespace

CommandEnd run_self(const std::vector<std::string>& words, const std::filesystem::path& folder, int64_t ranks,
                    const CommandLimits& limits) {
  std::vector<std::string> all{this_program().string()};
  if (ranks > 1)
    for (const std::string& word : {std::string("launch"), std::string("-n"), std::to_string(ranks), std::string("--")})
      all.push_back(word);
  all.insert(all.end(), words.begin(), words.end());
  return run_command(all, folder, limits);
}

ExitCode exit_code_of(const CommandEnd& end) {
  const bool documented = end.code > 0 && end.code <= static_cast<int>(ExitCode::gate);
  return documented ? static_cast<ExitCode>(end.code) : ExitCode::bug;
}

std::string failure_of(const CommandEnd& end) {
  if (end.took_too_long) return "failed: it took too long and was ended";
  std::string line = last_line(end.errors);
  if (line.starts_with("trainopt: ")) line = line.substr(10);
  if (line.empty()) line = end.code > 128 ? fmt::format("ended by signal {}", end.code - 128) : "no message";
  return fmt::format("failed (exit code {}): {}", end.code, line);
}

}  // namespace trainopt
