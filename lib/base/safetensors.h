// The safetensors format: eight bytes with the header's length, a JSON header, then the tensors' bytes. It holds data only, so reading
// a file from a stranger runs no code. Format: https://github.com/huggingface/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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

/// The same input gives the same bytes. Tensors with larger elements come first, so that all are aligned; otherwise the order is kept.
/// Writes to a temporary file beside `path`, fsyncs and renames. Throws UserError(storage).
void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                       const SafetensorsMetadata& metadata = {});

/// A mapped file. Anything that is not exactly the format throws UserError(checkpoint) naming the file and the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  /// In the order of the data; they point into the mapping, which lives as long as this object.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

 private:
  void map();
  void parse();
  [[noreturn]] void refuse(const std::string& why) const;

  std::filesystem::path path_;
  const unsigned char* begin_ = nullptr;
  size_t size_ = 0;
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
};

}  // namespace trainopt
