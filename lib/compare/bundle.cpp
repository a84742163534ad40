#include "compare/bundle.h"

#include "base/files/files.h"
#include "base/files/program_files.h"
#include "compare/output/comparison_json.h"
#include "compare/output/comparison_text.h"
#include "metrics/hardware/environment.h"

#include <xxhash.h>

namespace trainopt {
namespace {

Json result_of(const std::filesystem::path& folder) { return read_result(folder / "result.json"); }

void write_files(const std::filesystem::path& folder, const Json& result, const std::string& report,
                 const std::string& turns, const ProgramVersion& version) {
  write_file(folder / "result.json", json_text(result, 1) + "\n");
  write_file(folder / "report.md", report);
  write_file(folder / "turns.csv", turns);
  const auto environment = folder / "environment.json";  // does not change while results so far are written
  if (!std::filesystem::exists(environment))
    write_file(environment, json_text(measured_environment(version), 2) + "\n");
}

/// What `read` makes of the folder's result.json. Its errors get the folder's name.
template <class Read>
auto read_from(const std::filesystem::path& folder, Read&& read) {
  try {
    return read(result_of(folder));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", folder.string(), error.what()), ExitCode::data);
  }
}

/// What every reader of a result.json relies on. The rest it checks itself.
void require_result(const Json& json, const std::filesystem::path& path) {
  if (!json.is_object()) throw UserError(fmt::format("{}: it is not a JSON object", path.string()), ExitCode::data);
  if (json.contains("kind") && !json.at("kind").is_string())
    throw UserError(fmt::format("{}: its kind is not a word: {}", path.string(), json_text(json.at("kind"))),
                    ExitCode::data);
}

}  // namespace

Json read_result(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error)
    throw UserError(fmt::format("{} has no {}: it is not a folder written by trainopt compare or ablate",
                                folder_of(path).string(), path.filename().string()),
                    ExitCode::data);
  try {
    Json json = parse_json(read_file(path, ExitCode::data));
    require_result(json, path);
    return json;
  } catch (const Json::exception& exception) {
    throw UserError(fmt::format("{}: it is not JSON: {}", path.string(), json_problem(exception)), ExitCode::data);
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
  write_files(folder, to_json(comparison, true), comparison_markdown(comparison), comparison_csv(comparison), version);
}

void write_bundle(const std::filesystem::path& folder, const Against& against, const ProgramVersion& version) {
  write_files(folder, to_json(against, true), against_markdown(against), against_csv(against), version);
}

bool is_ablation(const std::filesystem::path& folder) { return result_of(folder).contains("switches"); }
bool is_against(const std::filesystem::path& folder) { return is_against(result_of(folder)); }

bool is_until(const std::filesystem::path& folder) {
  const std::string kind = result_of(folder).value("kind", "");
  return kind == "until" || kind == "ablate until";
}

Comparison read_bundle(const std::filesystem::path& folder) { return read_from(folder, comparison_from); }
Against read_against(const std::filesystem::path& folder) { return read_from(folder, against_from); }

}  // namespace trainopt
