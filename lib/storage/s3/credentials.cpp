#include "storage/s3/credentials.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "storage/s3/signature.h"
#include "storage/s3/xml.h"

#include <pugixml.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>
#include <system_error>
#include <utility>

namespace trainopt {
namespace {

constexpr int64_t kRenewBefore = 300;  ///< seconds before they expire
constexpr int64_t kPause = 30;         ///< seconds between attempts to renew what is still valid
constexpr int kAttempts = 3;           ///< tries for an endpoint that is known to be there
constexpr std::string_view kMetadata = "http://169.254.169.254/latest/";
/// The most bytes of a file or an answer.
constexpr int64_t kMostCredentialBytes = 1 << 20;

/// Places without credentials, each with the reason if there is one to tell.
using LookedIn = std::vector<std::string>;

[[noreturn]] void refuse_credentials(const std::string& sentence) { throw UserError(sentence, ExitCode::data); }

/// May stand in a header: no white space, and no line break that would begin another header.
bool is_word(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

/// A region, or the code of an error: no part of a URL but its own, and no secret.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
}

/// The body of an answer with status 200. The reason is given without the URL, which may hold a token.
std::string body_of(const CredentialsQuery& query, const PlainRequest& request, const std::string& place,
                    int attempts = kAttempts) {
  std::string reason;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    try {
      PlainAnswer answer = query.ask(request);
      if (answer.status == 200) return std::move(answer.body);
      reason = fmt::format("status {}", answer.status);
      const std::string code = parse_s3_error(answer.body).code;
      if (is_name(code)) reason += ", " + code;
      if (answer.status < 500 && answer.status != 429) break;
    } catch (const UserError& error) {
      reason = error.what();
      if (reason.find(request.url) != std::string::npos) reason = "no answer";
    }
  }
  refuse_credentials(fmt::format("{} gives no AWS credentials: {}", place, reason));
}

std::string token_in_file(const std::string& path) {
  std::string token = read_file(path, ExitCode::data, kMostCredentialBytes);
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) token.pop_back();
  return token;
}

struct KeyNames {
  const char *id, *secret, *token;
};

/// Null if neither id nor secret is there. Throws if only one is.
std::optional<Credentials> keys_in(const Variables& variables, const KeyNames& names, const std::string& source) {
  Credentials found{.key_id = value_or_nothing(variables, names.id),
                    .secret = value_or_nothing(variables, names.secret),
                    .session_token = value_or_nothing(variables, names.token),
                    .expires_at_s = std::nullopt,
                    .source = source};
  if (found.key_id.empty() && found.secret.empty()) return {};
  if (found.key_id.empty() || found.secret.empty())
    refuse_credentials(fmt::format("{} needs {}, which is missing: {}", found.key_id.empty() ? names.secret : names.id,
                                   found.key_id.empty() ? names.id : names.secret, source));
  return found;
}

std::optional<Credentials> from_environment(const CredentialsQuery& query, LookedIn& looked) {
  if (query.profile) return {};
  looked.emplace_back("the environment");
  return keys_in(query.variables, {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"},
                 "the environment");
}

/// "2026-01-01T00:00:00Z", also with a fraction and with an offset such as +01:00; null if it is no such time.
std::optional<int64_t> unix_time(const std::string& text) {
  std::tm time{}, zone{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (rest == nullptr) return {};
  if (*rest == '.') rest += 1 + std::strspn(rest + 1, "0123456789");
  rest = strptime(rest, "%z", &zone);
  if (rest == nullptr || *rest != '\0') return {};
  return timegm(&time) - zone.tm_gmtoff;
}

std::string sts_host(const Variables& variables) {
  std::string region = value_or_nothing(variables, "AWS_REGION");
  if (region.empty()) region = value_or_nothing(variables, "AWS_DEFAULT_REGION");
  if (region.empty()) return "sts.amazonaws.com";
  if (!is_name(region)) refuse_credentials(fmt::format("AWS_REGION is not the name of a region: {}", region));
  return fmt::format("sts.{}.amazonaws.com{}", region, region.starts_with("cn-") ? ".cn" : "");
}

/// AssumeRoleWithWebIdentity of the Security Token Service: how a Kubernetes service account becomes a role.
std::optional<Credentials> from_web_identity(const CredentialsQuery& query, LookedIn&) {
  const std::string file = value_or_nothing(query.variables, "AWS_WEB_IDENTITY_TOKEN_FILE"),
                    role = value_or_nothing(query.variables, "AWS_ROLE_ARN");
  if (query.profile || file.empty()) return {};
  if (role.empty()) refuse_credentials("AWS_WEB_IDENTITY_TOKEN_FILE needs AWS_ROLE_ARN, which is not set");
  std::string session = value_or_nothing(query.variables, "AWS_ROLE_SESSION_NAME");
  if (session.empty()) session = "trainopt";
  const std::string host = sts_host(query.variables);
  const std::string place = fmt::format("{} for the role {} and the token in {}", host, role, file);
  const std::string url = fmt::format("https://{}/?{}", host,
                                      canonical_query({{"Action", "AssumeRoleWithWebIdentity"},
                                                       {"RoleArn", role},
                                                       {"RoleSessionName", session},
                                                       {"Version", "2011-06-15"},
                                                       {"WebIdentityToken", token_in_file(file)}}));
  const std::string body = body_of(query, {.method = "GET", .url = url, .headers = {}, .timeout_s = 10}, place);
  pugi::xml_document document;
  document.load_buffer(body.data(), body.size());
  const pugi::xml_node found =
      document.child("AssumeRoleWithWebIdentityResponse").child("AssumeRoleWithWebIdentityResult").child("Credentials");
  const char *id = found.child_value("AccessKeyId"), *secret = found.child_value("SecretAccessKey"),
             *token = found.child_value("SessionToken");
  const auto expires = unix_time(found.child_value("Expiration"));
  if (*id == '\0' || *secret == '\0' || *token == '\0' || !expires)
    refuse_credentials(fmt::format("the answer holds no credentials: {}", place));
  return Credentials{.key_id = id, .secret = secret, .session_token = token, .expires_at_s = expires, .source = place};
}

/// A JSON object with AccessKeyId, SecretAccessKey, Expiration and a session token by this name, as the container and
/// instance endpoints and processes answer. Throws with `source`, and never with what stands in the text.
Credentials credentials_in_json(std::string_view text, const char* token, const std::string& source) {
  const Json json = parse_json(text, /*allow_exceptions=*/false);
  const auto word = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_string() ? json[name].get<std::string>() : "";
  };
  Credentials found{.key_id = word("AccessKeyId"),
                    .secret = word("SecretAccessKey"),
                    .session_token = word(token),
                    .expires_at_s = unix_time(word("Expiration")),
                    .source = source};
  if (found.key_id.empty() || found.secret.empty())
    refuse_credentials(fmt::format("the answer holds no AWS credentials: {}", source));
  if (!found.expires_at_s && json.contains("Expiration") && !json["Expiration"].is_null())
    refuse_credentials(fmt::format("the answer's Expiration is not a time: {}", source));
  return found;
}

/// Plain http only where no one else can listen: this machine, and the agents of ECS and EKS.
bool may_be_asked(std::string_view url) {
  if (url.starts_with("https://")) return true;
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return false;
  url.remove_prefix(kScheme.size());
  std::string_view host = url.substr(0, url.find_first_of("/?#"));
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find_first_not_of("0123456789", colon + 1) == std::string_view::npos)
    host = host.substr(0, colon);
  for (const char* known : {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "127.0.0.1", "localhost", "[::1]"})
    if (host == known) return true;
  return false;
}

std::optional<Credentials> from_container(const CredentialsQuery& query, LookedIn&) {
  const std::string relative = value_or_nothing(query.variables, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  std::string url = value_or_nothing(query.variables, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!relative.empty()) url = "http://169.254.170.2" + relative;
  if (url.empty()) return {};
  if (!may_be_asked(url))
    refuse_credentials(relative.empty()
                           ? "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or http on this machine or its "
                             "container agent"
                           : "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must begin with a slash");
  const std::string file = value_or_nothing(query.variables, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  const std::string token =
      file.empty() ? value_or_nothing(query.variables, "AWS_CONTAINER_AUTHORIZATION_TOKEN") : token_in_file(file);
  if (token.find_first_of("\r\n") != std::string::npos)
    refuse_credentials(
        fmt::format("the container's authorization token has several lines{}", file.empty() ? file : ": " + file));
  PlainRequest request{.method = "GET", .url = url, .headers = {}};
  if (!token.empty()) request.headers.push_back("Authorization: " + token);
  const std::string place = "the container's endpoint of credentials";
  return credentials_in_json(body_of(query, request, place), "Token", place);
}

/// IMDSv2. Most machines have no such service, so no answer means no credentials.
std::optional<Credentials> from_instance(const CredentialsQuery& query, LookedIn& looked) {
  std::string disabled = value_or_nothing(query.variables, "AWS_EC2_METADATA_DISABLED");
  for (char& c : disabled) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (disabled == "true") {
    looked.emplace_back("the instance metadata service is not asked (AWS_EC2_METADATA_DISABLED)");
    return {};
  }
  const std::string place = "the instance metadata service", base(kMetadata),
                    roles = base + "meta-data/iam/security-credentials/";
  try {
    const auto ask = [&](PlainRequest request, const std::string& of, int attempts) {
      request.timeout_s = 1;
      return body_of(query, request, of, attempts);
    };
    const std::string token =
        ask({.method = "PUT", .url = base + "api/token", .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}},
            place, 1);
    if (token.empty() || !is_word(token)) refuse_credentials(fmt::format("{} gives no token", place));
    const std::vector<std::string> headers{"X-aws-ec2-metadata-token: " + token};
    const std::string list =
        ask({.method = "GET", .url = roles, .headers = headers}, place + "'s list of roles", kAttempts);
    const std::string role = list.substr(0, list.find_first_of("\r\n"));
    if (role.empty() || !is_word(role)) refuse_credentials(fmt::format("{} names no role", place));
    const std::string source = fmt::format("{}, role {}", place, role);
    return credentials_in_json(ask({.method = "GET", .url = roles + role, .headers = headers}, source, kAttempts),
                               "Token", source);
  } catch (const UserError& error) {
    looked.emplace_back(error.what());
    return {};
  }
}

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
  std::string name;  ///< the profile's name
  bool is_named;     ///< the recipe or the environment names it
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

/// The credentials in the profile's sections in both files, or from its credential_process. Throws for a profile that
/// was named and has none, and for one whose credentials need a further request (role_arn, sso).
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

/// Refuses what cannot be sent, and what a server would.
Credentials usable(Credentials found, int64_t now_s) {
  if (!is_word(found.key_id) || !is_word(found.secret) || !is_word(found.session_token))
    refuse_credentials(
        fmt::format("the AWS credentials have a space or another character that no key has: {}", found.source));
  if (found.expires_at_s && *found.expires_at_s <= now_s)
    refuse_credentials(
        fmt::format("the AWS credentials expired at {}; renew them: {}", amz_date(*found.expires_at_s), found.source));
  return found;
}

}  // namespace

std::string value_or_nothing(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

Credentials find_credentials(const CredentialsQuery& query) {
  LookedIn looked;
  for (const auto find : {from_environment, from_web_identity, credentials_of_profile, from_container, from_instance})
    if (auto found = find(query, looked)) return usable(*std::move(found), query.now_s());
  refuse_credentials(fmt::format(
      "no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or data.storage.anonymous: true "
      "for a public bucket; looked in: {}",
      fmt::join(looked, "; ")));
}

std::shared_ptr<const Credentials> CredentialsSource::current() {
  std::unique_lock lock(mutex_);
  const int64_t now_s = query_.now_s();
  const bool is_valid = current_ && (!current_->expires_at_s || now_s < *current_->expires_at_s),
             is_fresh = is_valid && (!current_->expires_at_s || now_s < *current_->expires_at_s - kRenewBefore);
  if (is_fresh || (is_valid && now_s < try_again_at_s_)) return current_;
  if (!is_valid) {
    current_ = std::make_shared<const Credentials>(find_credentials(query_));
    return current_;
  }
  try_again_at_s_ = now_s + kPause;
  lock.unlock();  // meanwhile the other threads go on with the ones that are still valid
  std::shared_ptr<const Credentials> found;
  try {
    found = std::make_shared<const Credentials>(find_credentials(query_));
  } catch (const UserError&) {  // named recovery: they are looked for again until they expire
  }
  lock.lock();
  try_again_at_s_ = query_.now_s() + kPause;
  if (found) current_ = std::move(found);
  return current_;
}

std::shared_ptr<const Credentials> CredentialsSource::renewed(const std::shared_ptr<const Credentials>& used) {
  const std::lock_guard lock(mutex_);
  if (current_ == used) current_ = std::make_shared<const Credentials>(find_credentials(query_));
  return current_;
}

Section section_of(std::string_view file, const std::string& name) {
  Section section;
  bool is_in = false;
  size_t indent = std::string_view::npos;  // the last setting's indent; deeper lines belong to it, as below `s3 =`
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

std::optional<std::string> region_of_profile(const CredentialsQuery& query) {
  LookedIn ignored;
  const std::string region = value_or_nothing(config_section(profile_files(query), ignored), "region");
  return region.empty() ? std::nullopt : std::optional(region);
}

}  // namespace trainopt
