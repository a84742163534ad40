// manifest.json lists the files of a complete checkpoint. A folder that does not match its manifest byte for byte is
// not a checkpoint.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace trainopt {

constexpr const char* kManifestName = "manifest.json";
constexpr int64_t kMaxManifestBytes = int64_t{16} << 20;  // bytes

struct StoredFile {
  int64_t bytes = 0;
  uint64_t xxh3 = 0;  ///< 64-bit XXH3 of the file
  bool operator==(const StoredFile&) const = default;
};

struct Manifest {
  static constexpr int kFormatVersion = 1;
  int64_t step = 0;
  int64_t world_size = 1;
  std::map<std::string, std::string> versions;  ///< the program's and its libraries'; informational
  std::map<std::string, StoredFile> files;      ///< the keys are plain file names
  bool operator==(const Manifest&) const = default;
};

/// Whether `name` is allowed for a file: no folders, not hidden, printable, not the manifest's name.
bool is_stored_name(std::string_view name);

/// Canonical JSON ending with the hash of the text before it, so that a change of any byte is detected.
std::string manifest_text(const Manifest& manifest);
/// Throws UserError(checkpoint) saying what is wrong; the caller must add the file's name.
Manifest parse_manifest(std::string_view text);

}  // namespace trainopt
