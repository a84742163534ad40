#include "compare/bundle.h"

#include "base/files.h"
#include "compare/arm_process.h"
#include "compare/comparison_json.h"
#include "compare/comparison_text.h"
#include "metrics/environment.h"

#include <xxhash.h>

namespace trainopt {

Json read_result(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error)
    throw UserError(fmt::format("{} has no {}: it is not a folder written by trainopt compare or ablate",
                                folder_of(path).string(), path.filename().string()),
                    ExitCode::data);
  try {
    return parse_json(read_file(path, ExitCode::data));
  } catch (const Json::exception& exception) {
    throw UserError(fmt::format("{}: it is not JSON: {}", path.string(), exception.what()), ExitCode::data);
  }
}

Json measured_environment(const ProgramVersion& version) {
  Json json = environment(version);
  const std::string program = read_file(this_program(), ExitCode::bug);
  const XXH128_hash_t hash = XXH3_128bits(program.data(), program.size());
  json["program_xxh3"] = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  return json;
}

void write_bundle(const std::filesystem::path& folder, const Comparison& comparison, const ProgramVersion& version) {
  write_file(folder / "result.json", json_text(to_json(comparison, true), 1) + "\n");
  write_file(folder / "report.md", comparison_markdown(comparison));
  write_file(folder / "turns.csv", comparison_csv(comparison));
  write_file(folder / "environment.json", json_text(measured_environment(version), 2) + "\n");
}

bool is_ablation(const std::filesystem::path& folder) {
  return read_result(folder / "result.json").contains("switches");
}

Comparison read_bundle(const std::filesystem::path& folder) {
  try {
    return comparison_from(read_result(folder / "result.json"));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", folder.string(), error.what()), ExitCode::data);
  }
}

}  // namespace trainopt
