// A file that a data set reads, wherever it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

/// Safe to use from many threads.
class DataFile {
 public:
  DataFile(std::string name, int64_t size, std::string version)
      : name_(std::move(name)), version_(std::move(version)), size_(size) {}
  virtual ~DataFile() = default;
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  /// The name for messages: a path, or s3://bucket/key.
  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }
  /// Changes when the content does: an object's ETag, or the time of its last change, with its server; of a local file
  /// the time of its last change, in nanoseconds.
  const std::string& version() const { return version_; }

  /// The `bytes` bytes from `offset` on, which must lie within the file. Valid until `scratch` changes or the file is
  /// destroyed. Throws UserError(data), naming the file, if they cannot be read or the file is no longer the one that
  /// was opened. Of a mapped file, call require_mapped_files_whole() before what was made of them is used.
  virtual std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const = 0;
  /// As read(), of bytes that are not read again: a cache in memory does not keep them.
  virtual std::span<const uint8_t> read_once(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const {
    return read(offset, bytes, scratch);
  }
  /// Announces a read() or read_once() of exactly these bytes, so that it finds them already on their way. May be
  /// ignored. Never throws: what goes wrong is thrown by that read.
  virtual void expect(int64_t /*offset*/, int64_t /*bytes*/) const {}
  /// How many reads should be announced ahead; 0: none, because it is local.
  virtual int64_t reads_ahead() const { return 0; }
  /// Whether it is mapped: read() then does not copy.
  virtual bool is_mapped() const { return false; }

 private:
  std::string name_, version_;
  int64_t size_;
};

/// Maps the file. Throws FileError(data), and UserError(data) for what is no regular file.
std::unique_ptr<const DataFile> open_local_file(const std::filesystem::path& path);

}  // namespace trainopt
