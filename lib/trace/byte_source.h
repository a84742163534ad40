// The bytes of a plain or gzip-compressed file as a stream buffer with constant memory.
#pragma once

#include "base/files/file_calls.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <streambuf>
#include <vector>

struct z_stream_s;

namespace trainopt::trace {

/// The default limit for a trace's text: a few megabytes of gzip can hold more than any disk.
constexpr int64_t kMostJsonBytes = int64_t{4} << 30;

class ByteSource : public std::streambuf {
 public:
  /// Opens a file, or a pipe. Compression is recognised by the first bytes. Throws UserError(data) if the file cannot
  /// be read or is empty, or if its name ends in .gz but its content is not gzip.
  explicit ByteSource(const std::filesystem::path& path, int64_t most_bytes = kMostJsonBytes);
  ~ByteSource() override;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

 protected:
  /// Throws UserError(data) if the compressed data are damaged or end too early, or if there are more than
  /// `most_bytes`.
  int_type underflow() override;

 private:
  size_t read_plain();
  size_t read_compressed();
  /// Reads the next piece of the file into `input_`; false at its end.
  bool read_input();

  File file_;
  std::vector<char> input_, output_;
  size_t input_bytes_ = 0;
  const int64_t most_bytes_;
  int64_t bytes_ = 0;                     ///< bytes so far
  std::unique_ptr<z_stream_s> inflater_;  ///< null: not compressed
  bool in_member_ = true;                 ///< a gzip file is a sequence of members; false between two
};

}  // namespace trainopt::trace
