// HTTP requests without body by libcurl: TLS is verified, redirects are not followed, only http and https are spoken.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trainopt {

struct HttpRequest {
  std::string method = "GET";  ///< GET, HEAD or PUT
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;
  double timeout_s = 30;  ///< limit to connect, and for a time with less than 1024 B/s received
  bool direct = false;    ///< goes past any proxy of the environment
  std::string ca_bundle;  ///< file of certificates; empty: the system's
};
struct HttpResponse {
  int status = 0;                              ///< 0: there was none
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< what did not go to the request's destination
  int64_t received = 0;                        ///< bytes of the body
  std::string failure;                         ///< empty, or why the response is missing or cut, in libcurl's words
  bool may_pass = true;                        ///< after a failure: another try may succeed
};

/// A connection that is kept open from request to request. For one thread at a time.
class HttpConnection {
 public:
  HttpConnection();
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  /// The body of a response with status 200 or 206 goes to `destination`, if there is one: no more than fits, and a
  /// longer body is a failure. Other bodies go to HttpResponse::body, up to 64 MiB. Headers beyond 1 MiB are a failure,
  /// and so is an answer that is not complete in the time that its bytes take at the least speed.
  HttpResponse send(const HttpRequest& request, std::optional<std::span<uint8_t>> destination = std::nullopt);
  /// Makes send() return soon, with a failure. For another thread.
  void abort();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainopt
