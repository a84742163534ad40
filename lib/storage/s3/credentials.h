// AWS credentials from where the AWS tools find them.
#pragma once

#include "storage/config.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// Never printed: there is no formatter, and errors name only where credentials came from.
struct Credentials {
  std::string key_id, secret;
  std::string session_token;            ///< empty: none
  std::optional<int64_t> expires_at_s;  ///< Unix time; null: never
  std::string source;                   ///< "the environment", "profile train of ~/.aws/credentials"
};

/// One answer to a plain HTTP request, for endpoints of credentials. Throws UserError(data) if there is no answer.
struct PlainRequest {
  std::string method, url;
  std::vector<std::string> headers;  ///< "Name: value"
  double timeout_s = 2;
};
struct PlainAnswer {
  int status = 0;
  std::string body;
};
using AskPlainly = std::function<PlainAnswer(const PlainRequest&)>;

struct CredentialsQuery {
  Variables variables;                 ///< AWS_…, HOME
  std::optional<std::string> profile;  ///< null: AWS_PROFILE, or `default`
  AskPlainly ask;
  std::function<int64_t()> now_s;  ///< Unix time
};

/// The first that is found of:
/// 1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, unless the recipe names a profile;
/// 2. likewise AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN, exchanged at STS (Kubernetes service accounts);
/// 3. the profile in AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, then in AWS_CONFIG_FILE or ~/.aws/config, also
///    its credential_process;
/// 4. AWS_CONTAINER_CREDENTIALS_FULL_URI or …_RELATIVE_URI (ECS, EKS) with AWS_CONTAINER_AUTHORIZATION_TOKEN(_FILE);
/// 5. the instance metadata service, version 2, unless AWS_EC2_METADATA_DISABLED is true.
/// Source: the chain of the AWS SDKs ("Standardized credential providers").
/// Throws UserError(data) that names the places looked in, and never a credential.
Credentials find_credentials(const CredentialsQuery& query);

/// `region` of the profile in the config file; null if it has none.
std::optional<std::string> region_of_profile(const CredentialsQuery& query);

/// Credentials that are found at the first use and again five minutes before they expire. If that fails, they serve to
/// their end, with an attempt every 30 seconds. Safe to use from many threads.
class CredentialsSource {
 public:
  explicit CredentialsSource(CredentialsQuery query) : query_(std::move(query)) {}
  std::shared_ptr<const Credentials> current();
  /// Looks again, unless another thread has done so since `used`. After a server refused `used` as expired.
  std::shared_ptr<const Credentials> renewed(const std::shared_ptr<const Credentials>& used);

 private:
  CredentialsQuery query_;
  std::mutex mutex_;
  std::shared_ptr<const Credentials> current_;
  int64_t try_again_at_s_ = 0;
};

/// Empty if there is no such variable.
std::string value_or_nothing(const Variables& variables, const std::string& name);

// The AWS tools' shared files of credentials and settings.

using Section = Variables;  ///< settings by name, in lower case

/// A section of an INI file as the AWS tools read them; empty if it is missing. Lines that are neither a section, a
/// setting nor a comment are skipped.
Section section_of(std::string_view file, const std::string& name);

}  // namespace trainopt
