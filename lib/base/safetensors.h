// The safetensors format: eight bytes with the header's length, a JSON header, then the tensors' bytes. It holds data
// only, so reading a file from a stranger runs no code. Format: https://github.com/huggingface/safetensors.
#pragma once

#include "base/checksum.h"
#include "base/file_calls.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trainopt {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL
  std::vector<int64_t> shape;
  const void* data = nullptr;  ///< contiguous, row-major, little-endian
  size_t bytes = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

/// Bytes of one element; 0 if the name is none of those above.
size_t safetensors_item_bytes(const std::string& dtype);

/// The same input gives the same bytes. Tensors with larger elements come first, so that all are aligned; otherwise the
/// order is kept. Appends to an empty file without syncing it, and returns the checksum of what it wrote. Throws
/// UserError(storage).
Checksum append_safetensors(File& file, const std::vector<SafetensorsEntry>& entries,
                            const SafetensorsMetadata& metadata = {});
/// replace_file with the same bytes. Throws UserError(storage).
void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                       const SafetensorsMetadata& metadata = {});

/// A file whose header was read and checked. Anything that is not exactly the format throws UserError(checkpoint)
/// naming the file and the tensor. Nothing is mapped: a file that shrinks while it is read is an error, not a SIGBUS.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  /// In the order of the data; their `data` is null.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

  /// Reads every tensor's bytes to where `place(entry)` says, each piece hashed while it is in the cache. Returns the
  /// checksum of the whole file, the header's as it was read at first. Throws UserError(checkpoint).
  Checksum read(const std::function<void*(size_t entry)>& place) const;

 private:
  void parse();
  [[noreturn]] void refuse(const std::string& why) const;

  File file_;
  std::string header_;  ///< with its length before it
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
};

}  // namespace trainopt
