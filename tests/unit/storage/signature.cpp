// Tests signatures against AWS's published ones: the Signature Version 4 test suite, and the examples of
// "Authenticating requests: using the Authorization header" in the S3 reference.
#include "storage/s3/signature.h"
#include "support/catch.h"

#include <algorithm>

using namespace trainopt;

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr int64_t kSuiteTime = 1440938160, kS3Time = 1369353600;
constexpr std::string_view kUnreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

std::string header_in(const Pairs& headers, const std::string& name) {
  const auto is_it = [&](const auto& header) { return header.first == name; };
  CHECK(std::count_if(headers.begin(), headers.end(), is_it) <= 1);
  const auto found = std::find_if(headers.begin(), headers.end(), is_it);
  return found == headers.end() ? "" : found->second;
}

std::string signature_in(const Pairs& headers) {
  const std::string value = header_in(headers, "authorization");
  return value.substr(value.rfind('=') + 1);
}

/// A request of the test suite.
Pairs signed_in_suite(const std::string& path, const Pairs& query, const Pairs& headers = {},
                      const std::string& session_token = "") {
  Credentials credentials;
  credentials.key_id = "AKIDEXAMPLE";
  credentials.secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
  credentials.session_token = session_token;
  return signed_headers(
      {.method = "GET", .host = "example.amazonaws.com", .path = path, .query = query, .headers = headers}, credentials,
      "us-east-1", "service", kSuiteTime);
}

Pairs signed_for_s3(const std::string& path, const Pairs& query, const Pairs& headers = {}) {
  Credentials credentials;
  credentials.key_id = "AKIAIOSFODNN7EXAMPLE";
  credentials.secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
  return signed_headers(
      {.method = "GET", .host = "examplebucket.s3.amazonaws.com", .path = path, .query = query, .headers = headers},
      credentials, "us-east-1", "s3", kS3Time);
}

}  // namespace

TEST_CASE("signatures are those of AWS's test suite") {
  const std::string plain(kUnreserved);
  CHECK(signature_in(signed_in_suite("/", {})) == "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  CHECK(signature_in(signed_in_suite("/", {{"Param1", "value1"}})) ==
        "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb");
  CHECK(signature_in(signed_in_suite("/", {{"Param2", "value2"}, {"Param1", "value1"}})) ==
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  CHECK(signature_in(signed_in_suite("/", {{"Param-3", "Value3"}, {"Param", "Value2"}, {"ሴ", "Value1"}})) ==
        "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac");
  CHECK(signature_in(signed_in_suite("/", {{plain, plain}})) ==
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197");
  CHECK(signature_in(signed_in_suite("/", {{"ሴ", "bar"}})) ==
        "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04");
  CHECK(signature_in(signed_in_suite(uri_encoded("/ሴ", true), {})) ==
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
  CHECK(signature_in(signed_in_suite(uri_encoded("/example space/", true), {})) ==
        "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741");
  CHECK(signature_in(signed_in_suite(uri_encoded("/" + plain, true), {})) ==
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f");
}

TEST_CASE("headers are signed in order, with white space as AWS counts it") {
  const Pairs headers{{"my-header2", " \"a   b   c\" "}, {"my-header1", " value1"}};
  const Pairs all = signed_in_suite("/", {}, headers);
  CHECK(signature_in(all) == "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
  CHECK(header_in(all, "authorization") ==
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;my-header1;my-header2;x-amz-date, "
        "Signature=acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
  CHECK(header_in(all, "my-header2") == " \"a   b   c\" ");
  CHECK(header_in(all, "x-amz-date") == "20150830T123600Z");
  CHECK(header_in(all, "host").empty());
  CHECK(header_in(all, "x-amz-content-sha256").empty());
  CHECK(header_in(all, "x-amz-security-token").empty());
}

TEST_CASE("a session token is sent and signed") {
  const std::string token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
  const Pairs headers = signed_in_suite("/", {}, {}, token);
  CHECK(header_in(headers, "x-amz-security-token") == token);
  CHECK(signature_in(headers) == "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8");
}

TEST_CASE("signatures are those of S3's examples") {
  const Pairs ranged = signed_for_s3("/test.txt", {}, {{"range", "bytes=0-9"}});
  CHECK(header_in(ranged, "authorization") ==
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  CHECK(header_in(ranged, "range") == "bytes=0-9");
  CHECK(header_in(ranged, "x-amz-content-sha256") ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(signature_in(signed_for_s3("/", {{"lifecycle", ""}})) ==
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  CHECK(signature_in(signed_for_s3("/", {{"prefix", "J"}, {"max-keys", "2"}})) ==
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("keys are encoded byte by byte") {
  CHECK(uri_encoded(kUnreserved, false) == kUnreserved);
  CHECK(uri_encoded("a/b c+d%é", false) == "a%2Fb%20c%2Bd%25%C3%A9");
  CHECK(uri_encoded("a/b c", true) == "a/b%20c");
  CHECK(uri_encoded(std::string_view("\0\n\x7f\xff", 4), true) == "%00%0A%7F%FF");
  CHECK(uri_encoded("", true).empty());
  CHECK(canonical_query({}).empty());
  CHECK(canonical_query({{"b", "x/y"}, {"a", "2"}, {"a", "1"}, {"a-b", ""}}) == "a=1&a=2&a-b=&b=x%2Fy");
}

TEST_CASE("the time of a signature is in UTC") {
  CHECK(amz_date(kSuiteTime) == "20150830T123600Z");
  CHECK(amz_date(0) == "19700101T000000Z");
  CHECK(amz_date(1709251199) == "20240229T235959Z");
  CHECK(amz_date(int64_t{1} << 32) == "21060207T062816Z");
}
