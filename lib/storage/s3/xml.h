// The XML answers of S3. pugixml reads no external entities and expands none but the five of XML.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct ListedObject {
  std::string key;
  int64_t bytes = 0;
  std::string etag;  ///< with its quotes
  bool operator==(const ListedObject&) const = default;
};
/// A page of ListObjectsV2.
struct ObjectList {
  std::vector<ListedObject> objects;
  std::vector<std::string> folders;  ///< common prefixes, which end in a slash
  std::optional<std::string> next;   ///< the continuation token; null: this was the last page
};
/// Throws UserError(data) for what is no such answer: other XML, a size that is no number, a truncated list without a
/// token. Keys may be URL-encoded (encoding-type=url), and are decoded if the answer says so.
ObjectList parse_object_list(std::string_view xml);

/// The body of a refused request; empty strings where it has none, or is no XML.
struct S3Error {
  std::string code;  ///< "NoSuchKey"
  std::string message;
  std::string region;  ///< with the code AuthorizationHeaderMalformed or PermanentRedirect: where the bucket is
  std::string request_id;
};
S3Error parse_s3_error(std::string_view xml);

}  // namespace trainopt
