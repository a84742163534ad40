// Reads objects of S3, and of servers that speak its protocol.
#pragma once

#include "storage/http.h"
#include "storage/read_times.h"
#include "storage/s3/credentials.h"
#include "storage/s3/xml.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

struct S3Options {
  std::string endpoint;  ///< "https://host:port/prefix"; empty: AWS
  std::string region = "us-east-1";
  bool path_style = false;
  bool anonymous = false;
  double timeout_s = 30;
  int64_t retries = 5;
  std::string ca_bundle;  ///< file of certificates; empty: the system's
};

/// The object's name in messages, as a recipe spells it.
inline std::string object_name(const std::string& bucket, const std::string& key) {
  return "s3://" + bucket + "/" + key;
}

/// An object, as it was when it was opened.
struct S3Object {
  std::string bucket, key;
  int64_t bytes = 0;
  std::string version;    ///< its ETag, or the time of its last change
  bool has_etag = false;  ///< a strong one, which requests can name
  std::string name() const { return object_name(bucket, key); }
};

struct S3Counters {
  std::atomic<int64_t> requests{0}, retries{0}, bytes{0};
  ReadTimes reads;  ///< with their retries
};

/// Waits that long; false if it was told to stop meanwhile.
using WaitOrStop = std::function<bool(double seconds)>;

/// Safe to use from many threads, each with its own connection. Requests are repeated after status 408, 429, 500, 502,
/// 503 and 504, a connection that breaks, and a body that is short: with a wait that doubles from 0.1 to at most 10
/// seconds, of which a random half is left out so that many clients do not come back at once. All functions throw
/// UserError(data) with object, status, the server's code and request id for what is refused or still fails.
class S3Client {
 public:
  S3Client(S3Options options, CredentialsQuery credentials);

  /// The objects whose keys start with `prefix` and have no `/` after it, by key; and the prefixes up to that `/` of
  /// those that have one, as objects without bytes.
  std::vector<ListedObject> list(const std::string& bucket, const std::string& prefix, HttpConnection& connection,
                                 const WaitOrStop& wait);
  const std::string& endpoint() const { return options_.endpoint; }
  /// Size and version.
  S3Object open(const std::string& bucket, const std::string& key, HttpConnection& connection, const WaitOrStop& wait);
  /// Fills `to` with the object's bytes from `offset` on. The request names a strong ETag (If-Match), so that the
  /// server refuses an object that was replaced; the answer's version is compared too.
  void read(const S3Object& object, int64_t offset, std::span<uint8_t> to, HttpConnection& connection,
            const WaitOrStop& wait);
  const S3Counters& counters() const { return counters_; }

 private:
  struct Request {
    std::string method, bucket, key;  ///< key empty: the bucket
    std::vector<std::pair<std::string, std::string>> query, headers;
    std::string name() const { return object_name(bucket, key); }
  };
  /// Returns why an answer with a good status cannot be used, or "".
  using Check = std::function<std::string(const HttpResponse&)>;

  HttpResponse send(const Request& request, HttpConnection& connection, const WaitOrStop& wait, const Check& check,
                    std::optional<std::span<uint8_t>> to = std::nullopt);
  HttpRequest http_request(const Request& request, const Credentials* credentials) const;
  /// Replaces the answer to a refused HEAD, which has no body, by that to a GET.
  void explain(Request request, const Credentials* credentials, HttpConnection& connection, HttpResponse& response);
  [[noreturn]] void refuse(const Request& request, const HttpResponse& response) const;

  S3Options options_;
  CredentialsSource credentials_;
  S3Counters counters_;
};

}  // namespace trainopt
