// The safetensors format: eight bytes with the header's length, a JSON header, then the tensors' bytes. It contains
// only data, so reading an untrusted file runs no code. Format: https://github.com/huggingface/safetensors.
#pragma once

#include "base/checksum.h"
#include "base/files/file_calls.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
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

/// Bytes per element; 0 for an unknown dtype.
size_t safetensors_item_bytes(const std::string& dtype);

/// Appends to an empty file without syncing it and returns the checksum of the bytes written. The same input gives the
/// same bytes. Tensors with larger elements come first, so that all are aligned; otherwise the order is kept. Throws
/// UserError(storage).
Checksum append_safetensors(File& file, const std::vector<SafetensorsEntry>& entries,
                            const SafetensorsMetadata& metadata = {});
/// Writes the same bytes with replace_file(). Throws UserError(storage).
void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                       const SafetensorsMetadata& metadata = {});

/// A file whose header has been read and checked. Any deviation from the format throws UserError(checkpoint) that names
/// the file and the tensor. The file is not mapped: one that shrinks while it is read is an error, not a SIGBUS.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  /// The entries in the order of their data; `data` is null.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

  /// Reads each tensor's bytes to `destination(entry)` and hashes each piece while it is in the CPU cache. Returns the
  /// checksum of the whole file; the header's bytes are those that the constructor read. Throws UserError(checkpoint).
  Checksum read(const std::function<void*(size_t entry)>& destination) const;

 private:
  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;  ///< begin and end of each entry's data

  void parse();
  /// Reads the header and returns the number of data bytes after it.
  uint64_t read_header();
  /// Sorts the entries by their data, which must have no gaps or overlaps.
  void sort_entries(const Ranges& ranges, uint64_t data_bytes);
  [[noreturn]] void refuse(const std::string& why) const;

  File file_;
  std::string header_;  ///< including the eight bytes of its length
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
};

}  // namespace trainopt
