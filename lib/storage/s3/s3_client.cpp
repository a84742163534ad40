#include "storage/s3/s3_client.h"

#include "base/error.h"
#include "storage/s3/signature.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <random>

namespace trainopt {
namespace {

constexpr int64_t kMostPages = 100'000;  // a page lists up to a thousand objects
constexpr double kFirstWait = 0.1, kLongestWait = 10;

bool may_pass(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

std::string header_of(const HttpResponse& response, const std::string& name) {
  const auto found = response.headers.find(name);
  return found == response.headers.end() ? "" : found->second;
}

std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

/// A random time between half of `seconds` and all of it.
double with_jitter(double seconds) {
  thread_local std::minstd_rand random(std::random_device{}());
  return seconds * std::uniform_real_distribution(0.5, 1.0)(random);
}

/// Whether the bucket is named in the path. A certificate for *.host does not cover names with dots.
bool in_path(const S3Options& options, const std::string& bucket) {
  return options.path_style || (options.endpoint.empty() && bucket.find('.') != std::string::npos);
}

/// An ETag; without one, as Alluxio answers for files that it did not upload, the time of the last change. A weak ETag
/// names the same bytes as a strong one here.
std::string version_of(const HttpResponse& response) {
  const std::string etag = header_of(response, "etag");
  if (etag.empty()) return header_of(response, "last-modified");
  return etag.starts_with("W/") ? etag.substr(2) : etag;
}

/// scheme, host with port, and path prefix without a slash at the end.
struct Endpoint {
  std::string scheme, host, prefix;
};

Endpoint endpoint_of(const S3Options& options, const std::string& bucket) {
  if (options.endpoint.empty()) {
    const char* const country = options.region.starts_with("cn-") ? ".cn" : "";
    const std::string host = fmt::format("s3.{}.amazonaws.com{}", options.region, country);
    return {"https", in_path(options, bucket) ? host : bucket + "." + host, ""};
  }
  const std::string& url = options.endpoint;
  const size_t after_scheme = url.find("://");
  const std::string scheme = after_scheme == std::string::npos ? "" : url.substr(0, after_scheme);
  const std::string rest = after_scheme == std::string::npos ? "" : url.substr(after_scheme + 3);
  const size_t slash = rest.find('/');
  std::string host = rest.substr(0, slash);
  if ((scheme != "http" && scheme != "https") || host.empty() || host.find_first_of("@?# ") != std::string::npos ||
      rest.find_first_of("?# ") != std::string::npos)
    throw UserError("data.storage.endpoint must be a URL such as https://host:9000, without a user or a query");
  // HTTP leaves the scheme's own port out of the host, which is signed.
  const std::string_view own_port = scheme == "https" ? ":443" : ":80";
  if (host.ends_with(own_port)) host.resize(host.size() - own_port.size());
  std::string prefix = slash == std::string::npos ? "" : rest.substr(slash);
  while (prefix.ends_with('/')) prefix.pop_back();
  return {scheme, in_path(options, bucket) ? host : bucket + "." + host, prefix};
}

/// What to do, for the codes that a user meets.
std::string advice_for(const S3Error& error, int status) {
  if (error.code == "RequestTimeTooSkewed") return "set this machine's clock";
  if (!error.region.empty())
    return fmt::format("the bucket is in another region; set data.storage.region: {}", error.region);
  if (error.code == "NoSuchBucket") return "there is no such bucket";
  if (error.code == "ExpiredToken") return "the credentials have expired";
  if (error.code == "InvalidAccessKeyId" || error.code == "SignatureDoesNotMatch")
    return "the credentials are not valid";
  if (status == 412) return "the object was replaced after it was opened; start again to read the new one";
  if (status == 404) return "there is no such object";
  if (status == 401 || status == 403) return "access is denied to these credentials";
  if (status >= 300 && status < 400)
    return "the server redirects elsewhere, which is not followed; correct the endpoint";
  return "the server refuses the request";
}

}  // namespace

S3Client::S3Client(S3Options options, CredentialsQuery credentials)
    : options_(std::move(options)), credentials_(std::move(credentials)) {
  endpoint_of(options_, "bucket");  // refuses a bad one
}

HttpRequest S3Client::http_request(const Request& request, const Credentials* credentials) const {
  const Endpoint endpoint = endpoint_of(options_, request.bucket);
  std::string path = endpoint.prefix + "/";
  if (in_path(options_, request.bucket)) path += request.bucket + (request.key.empty() ? "" : "/");
  path += uri_encoded(request.key, /*keep_slash=*/true);
  HttpRequest http{.method = request.method,
                   .url = fmt::format("{}://{}{}", endpoint.scheme, endpoint.host, path),
                   .headers = request.headers,
                   .timeout_s = options_.timeout_s,
                   .ca_bundle = options_.ca_bundle};
  if (!request.query.empty()) http.url += "?" + canonical_query(request.query);
  if (credentials != nullptr)
    http.headers = signed_headers({.method = request.method,
                                   .host = endpoint.host,
                                   .path = path,
                                   .query = request.query,
                                   .headers = request.headers},
                                  *credentials, options_.region, "s3", std::time(nullptr));
  return http;
}

void S3Client::refuse(const Request& request, const HttpResponse& response) const {
  S3Error error = parse_s3_error(response.body);
  if (error.region.empty() && response.status < 404) error.region = header_of(response, "x-amz-bucket-region");
  if (error.region == options_.region) error.region.clear();
  std::string id = header_of(response, "x-amz-request-id");
  if (id.empty()) id = error.request_id;
  std::string details = fmt::format("status {}", response.status);
  if (!error.code.empty()) details += ", " + error.code;
  if (!id.empty()) details += ", request " + id;
  throw UserError(fmt::format("cannot read {}: {} ({})", request.name(), advice_for(error, response.status), details),
                  ExitCode::data);
}

void S3Client::explain(Request request, const Credentials* credentials, HttpConnection& connection,
                       HttpResponse& response) {
  request.method = "GET";
  request.headers.emplace_back("range", "bytes=0-0");
  ++counters_.requests;
  HttpResponse explained = connection.send(http_request(request, credentials));
  if (explained.failure.empty() && explained.status >= 300) response = std::move(explained);
}

HttpResponse S3Client::send(const Request& request, HttpConnection& connection, const WaitOrStop& wait,
                            const Check& check, std::optional<std::span<uint8_t>> to) {
  double pause = kFirstWait;
  bool renewed = false;
  for (int64_t attempt = 0;; ++attempt) {
    const auto credentials = options_.anonymous ? nullptr : credentials_.current();
    ++counters_.requests;
    HttpResponse response = connection.send(http_request(request, credentials.get()), to);
    counters_.bytes += response.received;
    std::string failure = response.failure;
    if (failure.empty() && (response.status == 200 || response.status == 206)) {
      failure = check(response);
      if (failure.empty()) return response;
    } else if (failure.empty() && !may_pass(response.status)) {
      if (request.method == "HEAD") explain(request, credentials.get(), connection, response);
      const std::string code = parse_s3_error(response.body).code;
      const bool has_expired = code == "ExpiredToken" || code == "InvalidToken" || code == "TokenRefreshRequired";
      if (!credentials || renewed || !has_expired) refuse(request, response);
      credentials_.renewed(credentials);
      renewed = true;
      continue;
    }
    if (attempt >= options_.retries || !response.may_pass) {
      if (failure.empty()) refuse(request, response);
      throw UserError(fmt::format("cannot read {}, tried {} times: {}", request.name(), attempt + 1, failure),
                      ExitCode::data);
    }
    ++counters_.retries;
    if (!wait(with_jitter(pause))) throw UserError(fmt::format("stopped reading {}", request.name()), ExitCode::data);
    pause = std::min(2 * pause, kLongestWait);
  }
}

std::vector<ListedObject> S3Client::list(const std::string& bucket, const std::string& prefix,
                                         HttpConnection& connection, const WaitOrStop& wait) {
  std::vector<ListedObject> all;
  std::optional<std::string> next;
  int64_t pages = 0;
  do {
    if (++pages > kMostPages)
      throw UserError(fmt::format("cannot list s3://{}/{}: the server's list does not end after {} pages", bucket,
                                  prefix, kMostPages),
                      ExitCode::data);
    Request request{.method = "GET",
                    .bucket = bucket,
                    .key = "",
                    .query = {{"delimiter", "/"}, {"encoding-type", "url"}, {"list-type", "2"}, {"prefix", prefix}},
                    .headers = {}};
    if (next) request.query.emplace_back("continuation-token", *next);
    const HttpResponse response = send(request, connection, wait, [](const HttpResponse&) { return ""; });
    ObjectList page = parse_object_list(response.body);
    for (ListedObject& object : page.objects)
      if (object.key.size() > prefix.size() && object.key.find('/', prefix.size()) == std::string::npos)
        all.push_back(std::move(object));
    for (std::string& folder : page.folders)
      if (folder.size() > prefix.size() && folder.ends_with('/')) all.push_back({.key = std::move(folder)});
    if (page.next && page.next == next)
      throw UserError(fmt::format("cannot list s3://{}/{}: the server repeats a page", bucket, prefix), ExitCode::data);
    next = std::move(page.next);
  } while (next);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return all;
}

S3Object S3Client::open(const std::string& bucket, const std::string& key, HttpConnection& connection,
                        const WaitOrStop& wait) {
  const Request request{.method = "HEAD", .bucket = bucket, .key = key, .query = {}, .headers = {}};
  S3Object object{.bucket = bucket, .key = key};
  send(request, connection, wait, [&](const HttpResponse& response) -> std::string {
    const auto bytes = number_in(header_of(response, "content-length"));
    object.version = version_of(response);
    object.has_etag = header_of(response, "etag").starts_with('"');
    if (!bytes || object.version.empty()) return "the server's answer has no size, or neither ETag nor Last-Modified";
    object.bytes = *bytes;
    return "";
  });
  return object;
}

void S3Client::read(const S3Object& object, int64_t offset, std::span<uint8_t> to, HttpConnection& connection,
                    const WaitOrStop& wait) {
  if (to.empty()) return;
  const auto bytes = static_cast<int64_t>(to.size());
  const std::string range = fmt::format("{}-{}", offset, offset + bytes - 1);
  Request request{.method = "GET",
                  .bucket = object.bucket,
                  .key = object.key,
                  .query = {},
                  .headers = {{"range", "bytes=" + range}}};
  if (object.has_etag) request.headers.emplace_back("if-match", object.version);
  const std::string expected = fmt::format("bytes {}/{}", range, object.bytes);
  const ReadTimes::Read timed(counters_.reads, bytes);
  send(
      request, connection, wait,
      [&](const HttpResponse& response) -> std::string {
        if (version_of(response) != object.version)
          throw UserError(fmt::format("cannot read {}: {}", object.name(), advice_for({}, 412)), ExitCode::data);
        if (response.received != bytes)
          return fmt::format("the server sent {} bytes of {} from byte {} on", response.received, bytes, offset);
        // Alluxio sends ranges with status 200 and without saying which. A server that sent all would have sent more.
        const std::string sent = header_of(response, "content-range");
        const bool is_unnamed = response.status == 200 && sent.empty();
        if (!is_unnamed && sent != expected)
          return fmt::format("the server sent another range: {}, instead of {}", sent, expected);
        return "";
      },
      to);
}

}  // namespace trainopt
