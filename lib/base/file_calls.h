// The calls to the file system behind everything this program keeps, in one place: checked, retried after a signal, with errors that
// name the file and the reason. A test can make the k-th of them fail, write short, or never return.
#pragma once

#include "base/error.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace trainopt {

enum class FileCall { open, read, write, reserve, truncate, sync, close, rename, link, remove, make_folder, status, list, lock };

/// What a test puts between this program and the file system.
class FileFaults {
 public:
  virtual ~FileFaults() = default;
  /// Before each call: 0 lets it through, anything else is the errno with which it fails. `bytes` of a read or write may be made smaller.
  /// May not return at all. Called by any thread.
  virtual int before(FileCall call, const std::filesystem::path& path, size_t& bytes) = 0;
};

/// Installed for the lifetime of the object, for all threads. The one mutable global of this program: a file system is one for a process too.
class ScopedFileFaults {
 public:
  explicit ScopedFileFaults(FileFaults& faults);
  ~ScopedFileFaults();
  ScopedFileFaults(const ScopedFileFaults&) = delete;
  ScopedFileFaults& operator=(const ScopedFileFaults&) = delete;
};

/// An open file. Every function throws UserError(code) with the path and errno's text.
class File {
 public:
  /// For reading.
  static File open(const std::filesystem::path& path, ExitCode code);
  /// New and for writing; fails if it exists. Errors are storage.
  static File create(const std::filesystem::path& path);
  ~File();   ///< closes, ignoring errors: close() first where they matter
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  /// Up to `bytes` from `offset`; fewer only at the file's end.
  size_t read_at(int64_t offset, void* to, size_t bytes) const;
  void append(const void* from, size_t bytes);
  /// Room for a file of this size, so that a full disk is known before anything is written. Nothing where the file system cannot.
  void reserve(int64_t bytes);
  void sync();
  void close();

 private:
  File(std::filesystem::path path, int fd, ExitCode code);
  std::filesystem::path path_;
  int fd_;
  ExitCode code_;
};

// Each throws UserError(storage).
void sync_folder(const std::filesystem::path& folder);
void make_folder(const std::filesystem::path& folder);                       ///< one level; fails if it exists
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// Both stay, under each other's name, at one moment. False where the file system cannot.
bool exchange_paths(const std::filesystem::path& one, const std::filesystem::path& other);
/// A symbolic link that replaces what is at `link` at one moment.
void point_link(const std::filesystem::path& link, const std::filesystem::path& target);
void remove_file(const std::filesystem::path& path);                         ///< nothing if it is not there
void remove_folder(const std::filesystem::path& folder);                     ///< with all that is in it; nothing if it is not there
int64_t free_bytes(const std::filesystem::path& folder);                     ///< for this user

}  // namespace trainopt
