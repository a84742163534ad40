// What the places have in common that find_credentials() looks in.
#pragma once

#include "storage/s3/credentials.h"
#include "storage/variables.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// Places without credentials, each with the reason if there is one to tell.
using LookedIn = std::vector<std::string>;

/// Of a file or an answer.
inline constexpr int64_t kMostCredentialBytes = 1 << 20;

[[noreturn]] void refuse_credentials(const std::string& sentence);
/// Empty if there is no such variable.
std::string value_or_nothing(const Variables& variables, const std::string& name);

struct KeyNames {
  const char *id, *secret, *token;
};
/// Null if neither id nor secret is there. Throws if only one is.
std::optional<Credentials> keys_in(const Variables& variables, const KeyNames& names, const std::string& source);

/// A JSON object with AccessKeyId, SecretAccessKey, Expiration and a session token by this name, as the container and
/// instance endpoints and processes answer. Throws with `source`, and never with what stands in the text.
Credentials credentials_in_json(std::string_view text, const char* token, const std::string& source);

/// "2026-01-01T00:00:00Z", also with a fraction and with an offset such as +01:00; null if it is no such time.
std::optional<int64_t> unix_time(const std::string& text);

}  // namespace trainopt
