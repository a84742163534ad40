#include "storage/s3/signature.h"

#include "base/error.h"
#include "base/sha256.h"

#include <algorithm>
#include <ctime>

namespace trainopt {
namespace {

/// Without white space at the ends, and with single spaces within.
std::string trimmed(std::string_view value) {
  std::string result;
  for (const char c : value) {
    const bool is_space = c == ' ' || c == '\t';
    if (!is_space) result += c;
    if (is_space && !result.empty() && result.back() != ' ') result += ' ';
  }
  if (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

}  // namespace

std::string uri_encoded(std::string_view text, bool keep_slash) {
  static constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string encoded;
  for (const char c : text) {
    if (kPlain.find(c) != std::string_view::npos || (c == '/' && keep_slash))
      encoded += c;
    else
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

std::string canonical_query(const std::vector<std::pair<std::string, std::string>>& query) {
  std::vector<std::pair<std::string, std::string>> encoded;
  for (const auto& [name, value] : query) encoded.emplace_back(uri_encoded(name, false), uri_encoded(value, false));
  std::sort(encoded.begin(), encoded.end());
  std::string text;
  for (const auto& [name, value] : encoded) text += (text.empty() ? "" : "&") + name + "=" + value;
  return text;
}

std::string amz_date(int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &utc)};
}

std::vector<std::pair<std::string, std::string>> signed_headers(const SignedRequest& request,
                                                                const Credentials& credentials, std::string_view region,
                                                                std::string_view service, int64_t unix_s) {
  const std::string body_hash = in_hex(sha256("")), time = amz_date(unix_s), day = time.substr(0, 8);
  auto headers = request.headers;
  headers.emplace_back("x-amz-date", time);
  if (service == "s3") headers.emplace_back("x-amz-content-sha256", body_hash);
  if (!credentials.session_token.empty()) headers.emplace_back("x-amz-security-token", credentials.session_token);

  auto to_sign = headers;
  to_sign.emplace_back("host", request.host);
  std::stable_sort(to_sign.begin(), to_sign.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string canonical_headers, names;
  for (const auto& [name, value] : to_sign) {
    canonical_headers += name + ":" + trimmed(value) + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                            canonical_query(request.query), canonical_headers, names, body_hash);
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", day, region, service);
  const std::string to_hash = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, in_hex(sha256(canonical)));
  const Sha256 of_day = hmac_sha256("AWS4" + credentials.secret, day), of_region = hmac_sha256(text_of(of_day), region),
               of_service = hmac_sha256(text_of(of_region), service),
               key = hmac_sha256(text_of(of_service), "aws4_request");
  headers.emplace_back("authorization",
                       fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                                   credentials.key_id, scope, names, in_hex(hmac_sha256(text_of(key), to_hash))));
  return headers;
}

}  // namespace trainopt
