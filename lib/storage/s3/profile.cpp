#include "storage/s3/profile.h"

#include "base/error.h"
#include "base/files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <system_error>
#include <utility>

namespace trainopt {
namespace {

constexpr std::string_view kDefaultProfile = "default";

std::string_view stripped(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view without_quotes(std::string_view text) {
  const bool is_quoted =
      text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.front() == text.back();
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

/// The name in `[name]`, where `[profile "name"]` is `profile name`. What follows the bracket is ignored, as the AWS
/// tools do.
std::string section_name(std::string_view line) {
  const std::string_view name = stripped(line.substr(1, std::max<size_t>(line.rfind(']'), 1) - 1));
  const size_t space = std::min(name.find_first_of(" \t"), name.size());
  if (name.substr(0, space) != "profile" || space == name.size()) return std::string(name);
  return fmt::format("profile {}", without_quotes(stripped(name.substr(space))));
}

struct ProfileFiles {
  std::string name;  ///< of the profile
  bool is_named;     ///< by the recipe or the environment
  std::string credentials, config;
};

ProfileFiles profile_files(const CredentialsQuery& query) {
  const std::string home = value_or_nothing(query.variables, "HOME"),
                    named = value_or_nothing(query.variables, "AWS_PROFILE");
  const auto path = [&](const char* variable, const char* usual) {
    const std::string given = value_or_nothing(query.variables, variable);
    if (given.empty()) return home + usual;
    return given.starts_with("~/") ? home + given.substr(1) : given;
  };
  return {.name = query.profile.value_or(named.empty() ? std::string(kDefaultProfile) : named),
          .is_named = query.profile || !named.empty(),
          .credentials = path("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"),
          .config = path("AWS_CONFIG_FILE", "/.aws/config")};
}

/// Empty if it cannot be read, which is no error: the home folder may be another user's in a container.
std::string text_of_file(const std::string& path, LookedIn& looked) {
  try {
    std::string text = read_file(path, ExitCode::data, kMostCredentialBytes);
    looked.push_back(path);
    return text;
  } catch (const FileError& error) {
    looked.push_back(fmt::format("{} ({})", path, std::generic_category().message(error.number())));
  }
  return "";
}

Section config_section(const ProfileFiles& files, LookedIn& looked) {
  const std::string text = text_of_file(files.config, looked);
  Section section = section_of(text, "profile " + files.name);
  if (files.name == kDefaultProfile) section.merge(section_of(text, files.name));
  return section;
}

/// The output goes through a pipe, because it must not be in any file.
Credentials from_process(const std::string& command, const std::string& source) {
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) refuse_credentials(fmt::format("cannot run {}", source));
  std::string output;
  std::array<char, 4096> part;
  while (output.size() <= kMostCredentialBytes) {
    const size_t bytes = std::fread(part.data(), 1, part.size(), pipe);
    if (bytes == 0) break;
    output.append(part.data(), bytes);
  }
  if (::pclose(pipe) != 0) refuse_credentials(fmt::format("{} failed; run its command to see why", source));
  return credentials_in_json(output, "SessionToken", source);
}

/// These need a further request, which the AWS command line makes.
void refuse_what_is_not_read(const Section& section, const std::string& profile, const std::string& path) {
  for (const char* other : {"role_arn", "sso_session", "sso_start_url"})
    if (section.contains(other))
      refuse_credentials(
          fmt::format("the profile {} in {} uses {}, which is not read here; name another profile that has "
                      "`credential_process = aws configure export-credentials --profile {}`",
                      profile, path, other, profile));
}

}  // namespace

Section section_of(std::string_view file, const std::string& name) {
  Section section;
  bool is_in = false;
  size_t indent = std::string_view::npos;  // of the last setting; lines indented deeper belong to it, as below `s3 =`
  while (!file.empty()) {
    const size_t end = std::min(file.find('\n'), file.size());
    const std::string_view line = file.substr(0, end), text = stripped(line);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (text.empty() || text.front() == '#' || text.front() == ';') continue;
    const size_t here = line.find(text.front());
    if (here > indent) continue;
    if (text.front() == '[') {
      is_in = section_name(text) == name;
      indent = std::string_view::npos;
      continue;
    }
    indent = here;
    const size_t equals = text.find_first_of("=:");
    if (!is_in || equals == std::string_view::npos) continue;
    std::string key(stripped(text.substr(0, equals)));
    for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    section[key] = stripped(text.substr(equals + 1));
  }
  return section;
}

std::optional<Credentials> credentials_of_profile(const CredentialsQuery& query, LookedIn& looked) {
  constexpr KeyNames kNames{"aws_access_key_id", "aws_secret_access_key", "aws_session_token"};
  const ProfileFiles files = profile_files(query);
  LookedIn here;
  const Section of_credentials = section_of(text_of_file(files.credentials, here), files.name),
                of_config = config_section(files, here);
  const auto source = [&](const std::string& path) { return fmt::format("the profile {} in {}", files.name, path); };
  refuse_what_is_not_read(of_credentials, files.name, files.credentials);
  refuse_what_is_not_read(of_config, files.name, files.config);
  if (auto found = keys_in(of_credentials, kNames, source(files.credentials))) return found;
  for (const auto& [section, path] : {std::pair{&of_credentials, &files.credentials}, {&of_config, &files.config}})
    if (const std::string command = value_or_nothing(*section, "credential_process"); !command.empty())
      return from_process(command, "credential_process of " + source(*path));
  if (auto found = keys_in(of_config, kNames, source(files.config))) return found;
  // A profile that has only settings leaves the keys to the later places, unless the recipe names it.
  if (query.profile || (files.is_named && of_credentials.empty() && of_config.empty()))
    refuse_credentials(fmt::format("the profile of {} has no keys in {}: {}",
                                   query.profile ? "data.storage.profile" : "AWS_PROFILE", fmt::join(here, " or "),
                                   files.name));
  for (const std::string& place : here) looked.push_back(fmt::format("the profile {} in {}", files.name, place));
  return {};
}

std::optional<std::string> region_of_profile(const CredentialsQuery& query) {
  LookedIn ignored;
  const std::string region = value_or_nothing(config_section(profile_files(query), ignored), "region");
  return region.empty() ? std::nullopt : std::optional(region);
}

}  // namespace trainopt
