// AWS Signature Version 4 of a request without body ("Signature Version 4 signing process", AWS General Reference).
#pragma once

#include "storage/s3/credentials.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt {

struct SignedRequest {
  std::string method;                                      ///< GET or HEAD
  std::string host;                                        ///< as in the URL, with the port if that is not the scheme's
  std::string path;                                        ///< as in the URL: encoded by uri_encoded(), from `/` on
  std::vector<std::pair<std::string, std::string>> query;  ///< not encoded
  std::vector<std::pair<std::string, std::string>> headers;  ///< further ones to be signed, in lower case
};

/// Every byte but A–Z, a–z, 0–9, `-`, `.`, `_`, `~` as %XX; `/` too unless `keep_slash`.
std::string uri_encoded(std::string_view text, bool keep_slash);
/// "a=1&b=x%2Fy", sorted by name, as signed.
std::string canonical_query(const std::vector<std::pair<std::string, std::string>>& query);
/// Unix time as "20150830T123600Z".
std::string amz_date(int64_t unix_s);

/// All headers to send, in lower case: `request.headers`, x-amz-date, x-amz-content-sha256 (for service s3),
/// x-amz-security-token if there is a session token, authorization. `host` is signed and left to the HTTP library.
std::vector<std::pair<std::string, std::string>> signed_headers(const SignedRequest& request,
                                                                const Credentials& credentials, std::string_view region,
                                                                std::string_view service, int64_t unix_s);

}  // namespace trainopt
