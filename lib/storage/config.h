// `data.storage`: how remote data sets (s3://bucket/prefix) are reached.
#pragma once

#include "config/describe.h"

#include <map>
#include <string>

namespace trainopt {

struct StorageConfig {
  std::optional<std::string> endpoint, region, profile;
  bool anonymous = false;
  std::optional<bool> path_style;
  int64_t concurrency = 32;
  Bytes part_size{int64_t{8} << 20};
  Duration timeout{30};
  int64_t retries = 5;
};

template <class V>
void describe(V& v, StorageConfig& c) {
  v.field("endpoint", c.endpoint,
          "URL of an S3-compatible server, with its path prefix if it has one; null: AWS_ENDPOINT_URL_S3, "
          "AWS_ENDPOINT_URL, or AWS.");
  v.field("region", c.region,
          "Region of the bucket; null: AWS_REGION, AWS_DEFAULT_REGION, the profile's, or us-east-1.");
  v.field("profile", c.profile, "Profile in the AWS credentials and config files; null: AWS_PROFILE, or default.");
  v.field("anonymous", c.anonymous, "Send requests without credentials, for public buckets.");
  v.field("path_style", c.path_style,
          "Name the bucket in the path instead of the host name; null: true with an endpoint, false for AWS.");
  v.field("concurrency", c.concurrency, "Requests in flight at once, per process.", in_range(1, 1024));
  v.field("part_size", c.part_size,
          "Largest request; longer reads are divided. concurrency × part_size bounds what is fetched ahead.",
          in_range(64 << 10, double{1LL << 30}));
  v.field("timeout", c.timeout,
          "Time to connect, and time with less than 1 KiB/s received, after which a request has failed.",
          in_range(0.1, 3600));
  v.field("retries", c.retries, "Further attempts of a request that failed for a passing reason.", in_range(0, 100));
}

// Environment variables, which app/ reads and passes on.

using Variables = std::map<std::string, std::string>;  ///< by name

}  // namespace trainopt
