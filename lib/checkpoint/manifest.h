// manifest.json: what a complete checkpoint consists of. A folder without one that fits it, byte for byte, is not a
// checkpoint.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace trainopt {

constexpr const char* kManifestName = "manifest.json";
constexpr int64_t kLargestManifest = int64_t{16} << 20;  // bytes

struct StoredFile {
  int64_t bytes = 0;
  uint64_t xxh3 = 0;  ///< XXH3 with 64 bits of all of them
  bool operator==(const StoredFile&) const = default;
};

struct Manifest {
  static constexpr int kFormatVersion = 1;
  int64_t step = 0;
  int64_t world_size = 1;
  std::map<std::string, std::string> versions;  ///< of the program and its libraries, for people
  std::map<std::string, StoredFile> files;      ///< by name, without folders
  bool operator==(const Manifest&) const = default;
};

/// A plain name: no folders, not hidden, nothing unprintable, not the manifest's.
bool is_stored_name(std::string_view name);

/// JSON that ends with the hash of what stands before it, so that a change of any byte is seen.
std::string manifest_text(const Manifest& manifest);
/// Throws UserError(checkpoint) saying what is wrong; the caller names the file.
Manifest parse_manifest(std::string_view text);

}  // namespace trainopt
