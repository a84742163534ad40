// Writes a gzip-compressed file piece by piece.
#pragma once

#include "base/files/file_calls.h"

#include <memory>
#include <string_view>
#include <vector>

struct z_stream_s;

namespace trainopt::trace {

class GzipWriter {
 public:
  /// `file` must outlive the writer.
  explicit GzipWriter(File& file);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  /// Throws FileError(storage), as finish().
  void append(std::string_view bytes);
  /// Writes what is left. Call it once, at the end.
  void finish();

 private:
  void deflate_all(std::string_view bytes, int flush);

  File& file_;
  std::unique_ptr<z_stream_s> deflater_;
  std::vector<char> output_;
};

}  // namespace trainopt::trace
