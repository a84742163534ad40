// Writes images to one file, front to back.
#pragma once

#include "base/checksum.h"
#include "base/file_calls.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

class ShardWriter {
 public:
  explicit ShardWriter(File& file) : file_(file) {}
  virtual ~ShardWriter() = default;
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Appends the sample at this place. `bytes`: its image as it is to be stored. Throws FileError(storage).
  virtual void add(int64_t place, std::span<const uint8_t> bytes, int64_t label) = 0;
  /// Appends what stands at the end. `class_names`: one for each class, or none.
  virtual void finish(const std::vector<std::string>& class_names) = 0;
  /// XXH3 of all that was written.
  uint64_t checksum() const { return checksum_.value(); }

 protected:
  void append(const void* data, size_t bytes) {
    checksum_.add(data, bytes);
    file_.append(data, bytes);
  }
  void append(std::string_view text) { append(text.data(), text.size()); }
  int64_t written() const { return checksum_.bytes(); }

 private:
  File& file_;
  Checksum checksum_;
};

}  // namespace trainopt
