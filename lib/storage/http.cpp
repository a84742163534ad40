#include "storage/http.h"

#include "base/error.h"
#include "base/progress.h"

#include <curl/curl.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <filesystem>

namespace trainopt {
namespace {

/// An answer that is slower for HttpRequest::timeout_s has failed.
constexpr int64_t kLeastBytesPerS = 1024;

constexpr size_t kMostBodyBytes = size_t{64} << 20;
constexpr size_t kMostHeaderBytes = size_t{1} << 20;

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string_view without_spaces(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// Failures that another try cannot mend: of the URL, of TLS certificates, or of our own making.
bool is_permanent(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_OUT_OF_MEMORY:
      return true;
    default:
      return false;
  }
}

/// Where Linux distributions keep the certificates that they trust. libcurl knows only the place of the one that it was
/// built for, and a package carries it to others.
std::string trusted_certificates() {
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"})
    if (std::error_code error; std::filesystem::exists(file, error)) return file;
  return "";
}

}  // namespace

struct HttpConnection::State {
  CURL* curl = nullptr;
  std::atomic<bool> aborted{false};
  char error[CURL_ERROR_SIZE] = {};

  // The current request's state.
  HttpResponse response;
  std::optional<std::span<uint8_t>> destination;
  bool too_long = false;
  size_t header_bytes = 0;

  template <class Value>
  void set(CURLoption option, Value value) {
    if (const CURLcode code = curl_easy_setopt(curl, option, value); code != CURLE_OK)
      throw UserError(fmt::format("libcurl refuses an option: {}", curl_easy_strerror(code)), ExitCode::data);
  }

  size_t take_header(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kMostHeaderBytes) {
      too_long = true;
      return 0;
    }
    if (line.starts_with("HTTP/")) {  // also of each interim response, such as 100
      response.headers.clear();
      return line.size();
    }
    if (const size_t colon = line.find(':'); colon != std::string_view::npos)
      response.headers[in_lower_case(line.substr(0, colon))] = without_spaces(line.substr(colon + 1));
    return line.size();
  }

  size_t take_body(const char* bytes, size_t count) {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    const auto received = static_cast<size_t>(response.received);
    if (destination && (status == 200 || status == 206)) {
      if (count > destination->size() - received) {
        too_long = true;
        return 0;
      }
      std::memcpy(destination->data() + received, bytes, count);
    } else {
      if (count > kMostBodyBytes - std::min(kMostBodyBytes, response.body.size())) {
        too_long = true;
        return 0;
      }
      response.body.append(bytes, count);
    }
    response.received += static_cast<int64_t>(count);
    return count;
  }

  static size_t on_header(const char* bytes, size_t size, size_t count, void* state) {
    return static_cast<State*>(state)->take_header({bytes, size * count});
  }
  static size_t on_body(const char* bytes, size_t size, size_t count, void* state) {
    return static_cast<State*>(state)->take_body(bytes, size * count);
  }
  static int on_progress(void* state, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<State*>(state)->aborted.load(std::memory_order_relaxed) ? 1 : 0;
  }
};

HttpConnection::HttpConnection() : state_(std::make_unique<State>()) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  state_->curl = started == CURLE_OK ? curl_easy_init() : nullptr;
  if (state_->curl == nullptr) throw UserError("libcurl could not be started", ExitCode::data);
}

HttpConnection::~HttpConnection() { curl_easy_cleanup(state_->curl); }

void HttpConnection::abort() { state_->aborted = true; }

HttpResponse HttpConnection::send(const HttpRequest& request, std::optional<std::span<uint8_t>> destination) {
  State& s = *state_;
  curl_easy_reset(s.curl);  // keeps the connection
  s.response = {};
  s.destination = destination;
  s.too_long = false;
  s.header_bytes = 0;
  s.error[0] = '\0';
  s.set(CURLOPT_ERRORBUFFER, static_cast<char*>(s.error));
  s.set(CURLOPT_URL, request.url.c_str());
  s.set(CURLOPT_PROTOCOLS_STR, "http,https");
  s.set(CURLOPT_FOLLOWLOCATION, 0L);
  s.set(CURLOPT_PATH_AS_IS, 1L);  // a signed path must not be changed
  s.set(CURLOPT_NOSIGNAL, 1L);
  s.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  if (request.direct) s.set(CURLOPT_PROXY, "");
  s.set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.timeout_s * 1000));
  s.set(CURLOPT_LOW_SPEED_LIMIT, long{kLeastBytesPerS});
  s.set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(request.timeout_s)));
  // curl does not watch the speed of headers.
  const auto most_bytes = static_cast<double>(destination ? destination->size() : kMostBodyBytes);
  const double bytes = request.method == "GET" ? most_bytes : 0;
  s.set(CURLOPT_TIMEOUT_MS,
        static_cast<long>(1000 * (3 * request.timeout_s + bytes / static_cast<double>(kLeastBytesPerS))));
  static const std::string kTrusted = trusted_certificates();
  if (const std::string& bundle = request.ca_bundle.empty() ? kTrusted : request.ca_bundle; !bundle.empty())
    s.set(CURLOPT_CAINFO, bundle.c_str());
  if (request.method == "HEAD") s.set(CURLOPT_NOBODY, 1L);
  if (request.method == "PUT") s.set(CURLOPT_CUSTOMREQUEST, "PUT");
  s.set(CURLOPT_HEADERFUNCTION, &State::on_header);
  s.set(CURLOPT_HEADERDATA, &s);
  s.set(CURLOPT_WRITEFUNCTION, &State::on_body);
  s.set(CURLOPT_WRITEDATA, &s);
  s.set(CURLOPT_NOPROGRESS, 0L);
  s.set(CURLOPT_XFERINFOFUNCTION, &State::on_progress);
  s.set(CURLOPT_XFERINFODATA, &s);
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      [&] {
        curl_slist* list = nullptr;
        for (const auto& [name, value] : request.headers)
          list = curl_slist_append(list, fmt::format("{}: {}", name, value).c_str());
        return list;
      }(),
      &curl_slist_free_all);
  s.set(CURLOPT_HTTPHEADER, headers.get());

  const CURLcode code = curl_easy_perform(s.curl);
  note_progress();
  long status = 0;
  curl_easy_getinfo(s.curl, CURLINFO_RESPONSE_CODE, &status);
  s.response.status = static_cast<int>(status);
  if (code != CURLE_OK) {
    s.response.failure = s.too_long ? "the answer is longer than what was asked for"
                                    : (s.error[0] != '\0' ? s.error : curl_easy_strerror(code));
    s.response.may_pass = !is_permanent(code);
  }
  s.destination.reset();
  return std::move(s.response);
}

}  // namespace trainopt
