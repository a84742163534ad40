// A DataFile as Arrow's input.
#pragma once

#include "storage/data_file.h"

#include <arrow/io/interfaces.h>
#include <arrow/result.h>

#include <memory>

namespace trainopt {

/// Reads are safe from many threads. What DataFile throws is kept for rethrow(), since no exception may pass through
/// Arrow.
class DataFileSource : public arrow::io::RandomAccessFile {
 public:
  explicit DataFileSource(std::shared_ptr<const DataFile> file) : file_(std::move(file)) {}

  /// Throws what a read of this thread threw since forget(), if one did.
  static void rethrow();
  static void forget();

  arrow::Result<int64_t> GetSize() override { return file_->size(); }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override;
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* to) override;
  arrow::Result<int64_t> Read(int64_t bytes, void* to) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override;
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override;
  arrow::Status Close() override;
  bool closed() const override { return closed_; }

 private:
  std::shared_ptr<const DataFile> file_;
  int64_t position_ = 0;
  bool closed_ = false;
};

}  // namespace trainopt
