// All file-system calls on data that the program stores: checked, retried after a signal, with errors that name the
// file and the reason. A path inside a HeldFolder reaches that folder, wherever its name leads by now. A test can make
// the k-th call fail, write short or never return.
#pragma once

#include "base/error.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainopt {

enum class FileCall {
  open,
  read,
  write,
  reserve,
  truncate,
  sync,
  close,
  rename,
  exchange,
  link,
  remove,
  make_folder,
  status,
  list,
  lock
};

/// A failed call. The message names the path and errno's text.
class FileError : public UserError {
 public:
  /// "cannot `what` `path`: No such file or directory".
  FileError(const std::string& what, const std::filesystem::path& path, int number, ExitCode code);
  int number() const { return number_; }  ///< errno

 private:
  int number_;
};

/// A test's hook before every file-system call.
class FileFaults {
 public:
  virtual ~FileFaults() = default;
  /// Called before each call, on any thread. 0 lets the call through; any other value is the errno it fails with.
  /// Implementations may reduce `bytes` of a read or write, and may never return.
  virtual int before(FileCall call, const std::filesystem::path& path, size_t& bytes) = 0;
};

/// Installs `faults` for all threads while the object lives. The hook is global because the file system is global to
/// the process too.
class ScopedFileFaults {
 public:
  explicit ScopedFileFaults(FileFaults& faults);
  ~ScopedFileFaults();
  ScopedFileFaults(const ScopedFileFaults&) = delete;
  ScopedFileFaults& operator=(const ScopedFileFaults&) = delete;
};

/// An open file. Every function throws FileError with the path and the code it was opened with.
class File {
 public:
  /// Opens for reading. Does not wait for a pipe's writer.
  static File open(const std::filesystem::path& path, ExitCode code);
  /// Opens for reading to the end with read(). Waits for a pipe's writer and its data.
  static File open_stream(const std::filesystem::path& path, ExitCode code);
  /// Creates for writing; fails if the file exists. Errors have ExitCode::storage.
  static File create(const std::filesystem::path& path);
  /// Opens for appending; creates the file if it is missing. Refuses a symbolic link, which could lead to any file.
  /// Errors have ExitCode::storage.
  static File append_to(const std::filesystem::path& path);
  ~File();  ///< closes and ignores errors: call close() first if they matter
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Current size in bytes; -1 for a pipe or a device. Throws for a folder.
  int64_t size() const;
  /// Reads up to `bytes` from where the last read() ended, also from a pipe. Returns fewer only at the end.
  size_t read(void* to, size_t bytes);
  /// Reads up to `bytes` at `offset`. Returns fewer only at the end of the file.
  size_t read_at(int64_t offset, void* to, size_t bytes) const;
  void append(const void* from, size_t bytes);
  int64_t appended() const { return appended_; }  ///< bytes since opening, including those of a failed append
  /// Reserves disk space for a file of this size, so that a full disk is noticed before anything is written. Does
  /// nothing if the file system does not support it. sync() and close() release unused space.
  void reserve(int64_t bytes);
  void truncate(int64_t bytes);
  /// Takes an exclusive lock, which close() releases. False if another open file, of any process, holds it.
  bool lock();
  void sync();
  /// Asks the kernel to forget what it keeps of this file in memory, so that the next reader reads the disk. Call
  /// sync() first, because changed pages stay.
  void drop_from_page_cache();
  void close();

 private:
  File(const std::filesystem::path& path, int flags, ExitCode code, const char* what);
  [[noreturn]] void fail(int error) const;
  void release_reserved_space();

  std::filesystem::path path_;
  int fd_ = -1;
  ExitCode code_;
  const char* what_;  ///< "read" or "write", for messages
  int64_t appended_ = 0, reserved_ = 0;
};

enum class PathKind { absent, file, folder, link, other };
struct PathStatus {
  PathKind kind;
  int64_t bytes;  ///< the size of a file
};
/// Does not follow a link.
PathStatus path_status(const std::filesystem::path& path, ExitCode code);
/// Follows links. `absent` also if it cannot be found out; whoever then uses the path learns why.
PathKind kind_of(const std::filesystem::path& path) noexcept;
/// The link's target as stored; empty if there is no link.
std::filesystem::path link_target(const std::filesystem::path& link, ExitCode code);
/// Names of the folder's entries, sorted.
std::vector<std::string> names_in_folder(const std::filesystem::path& folder, ExitCode code);

// Each of these throws FileError(storage).
/// Makes renames, new names and removals in the folder durable.
void sync_folder(const std::filesystem::path& folder);
void make_folder(const std::filesystem::path& folder);  ///< one level; fails if it exists
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// Atomically swaps the two names. False if the file system does not support it.
bool exchange_paths(const std::filesystem::path& one, const std::filesystem::path& other);
/// Creates a symbolic link, atomically replacing the one at `link`. A kill half-way leaves `.<name>.<pid>.tmp` next to
/// it.
void point_link(const std::filesystem::path& link, const std::filesystem::path& target);
void remove_file(const std::filesystem::path& path);              ///< does nothing if it is missing
void unlink_quietly(const std::filesystem::path& path) noexcept;  ///< while another error is on its way
void remove_folder(const std::filesystem::path& folder);          ///< with its contents; does nothing if it is missing
int64_t free_bytes(const std::filesystem::path& folder);          ///< available to this user

}  // namespace trainopt
