#include "data/formats/parquet/arrow/data_file_source.h"

#include "data/formats/parquet/parquet_reader.h"

#include <arrow/buffer.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>
#include <vector>

namespace trainopt {
namespace {

thread_local std::exception_ptr failure;

/// Announces all pieces, then copies them: the later ones are on their way while the first are copied.
void copy_range(const DataFile& file, int64_t position, int64_t bytes, uint8_t* to) {
  std::vector<uint8_t> scratch;
  for (int64_t begin = 0; begin < bytes; begin += kParquetPiece)
    file.expect(position + begin, std::min(kParquetPiece, bytes - begin));
  for (int64_t begin = 0; begin < bytes; begin += kParquetPiece) {
    const auto piece = file.read(position + begin, std::min(kParquetPiece, bytes - begin), scratch);
    std::memcpy(to + begin, piece.data(), piece.size());
  }
}

}  // namespace

void DataFileSource::rethrow() {
  if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

void DataFileSource::forget() { failure = nullptr; }

arrow::Result<std::shared_ptr<arrow::Buffer>> DataFileSource::ReadAt(int64_t position, int64_t bytes) {
  // A mapped file is copied too: if it were cut while Arrow decodes it, the process would end.
  std::vector<uint8_t> copy(static_cast<size_t>(std::clamp<int64_t>(file_->size() - position, 0, bytes)));
  ARROW_RETURN_NOT_OK(ReadAt(position, std::ssize(copy), copy.data()));
  return arrow::Buffer::FromVector(std::move(copy));
}

arrow::Result<int64_t> DataFileSource::ReadAt(int64_t position, int64_t bytes, void* to) {
  bytes = std::clamp<int64_t>(file_->size() - position, 0, bytes);
  try {
    copy_range(*file_, position, bytes, static_cast<uint8_t*>(to));
    return bytes;
  } catch (...) {
    failure = std::current_exception();
    return arrow::Status::IOError("the file cannot be read");
  }
}

arrow::Result<int64_t> DataFileSource::Read(int64_t bytes, void* to) {
  ARROW_ASSIGN_OR_RAISE(const int64_t read, ReadAt(position_, bytes, to));
  position_ += read;
  return read;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> DataFileSource::Read(int64_t bytes) {
  ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, bytes));
  position_ += buffer->size();
  return buffer;
}

arrow::Status DataFileSource::Seek(int64_t position) {
  position_ = position;
  return arrow::Status::OK();
}

arrow::Status DataFileSource::Close() {
  closed_ = true;
  return arrow::Status::OK();
}

}  // namespace trainopt
