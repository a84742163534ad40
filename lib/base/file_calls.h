// The calls to the file system behind everything this program keeps, in one place: checked, retried after a signal,
// with errors that name the file and the reason. A test can make the k-th of them fail, write short, or never return.
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

/// A call that failed. The sentence names the path and errno's text.
class FileError : public UserError {
 public:
  /// "cannot `what` `path`: No such file or directory".
  FileError(const std::string& what, const std::filesystem::path& path, int number, ExitCode code);
  int number() const { return number_; }  ///< errno

 private:
  int number_;
};

/// What a test puts between this program and the file system.
class FileFaults {
 public:
  virtual ~FileFaults() = default;
  /// Before each call: 0 lets it through, anything else is the errno with which it fails. `bytes` of a read or write
  /// may be made smaller. May not return at all. Called by any thread.
  virtual int before(FileCall call, const std::filesystem::path& path, size_t& bytes) = 0;
};

/// Installed for the lifetime of the object, for all threads. The one mutable global of this program: a file system is
/// one for a process too.
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
  /// For reading. Does not wait for a pipe's writer.
  static File open(const std::filesystem::path& path, ExitCode code);
  /// For reading to the end with read(): waits for a pipe's writer and for what it writes.
  static File open_stream(const std::filesystem::path& path, ExitCode code);
  /// New and for writing; fails if it exists. Errors are storage.
  static File create(const std::filesystem::path& path);
  /// For writing at the end; made if it is not there. Errors are storage.
  static File append_to(const std::filesystem::path& path);
  ~File();  ///< closes, ignoring errors: close() first where they matter
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Bytes in it now; -1 for what has no size (a pipe, a device). Throws for a folder.
  int64_t size() const;
  /// Up to `bytes` from where the last one ended, also from a pipe; fewer only at the end.
  size_t read(void* to, size_t bytes);
  /// Up to `bytes` from `offset`; fewer only at the file's end.
  size_t read_at(int64_t offset, void* to, size_t bytes) const;
  void append(const void* from, size_t bytes);
  int64_t appended() const { return appended_; }  ///< since it was opened, also by an append that failed half-way
  /// Room for a file of this size, so that a full disk is known before anything is written. Nothing where the file
  /// system cannot. What is not used is given back by sync() or close().
  void reserve(int64_t bytes);
  void truncate(int64_t bytes);
  /// Until it is closed, no other open file of any process can have the lock. False if one has it.
  bool lock();
  void sync();
  void close();

 private:
  File(const std::filesystem::path& path, int flags, ExitCode code, const char* what);
  [[noreturn]] void fail(int error) const;
  void give_back_reserve();

  std::filesystem::path path_;
  int fd_ = -1;
  ExitCode code_;
  const char* what_;  ///< "read" or "write", for messages
  int64_t appended_ = 0, reserved_ = 0;
};

enum class PathKind { absent, file, folder, link, other };
struct PathStatus {
  PathKind kind;
  int64_t bytes;  ///< of a file
};
/// Of a link itself, not of what it leads to.
PathStatus path_status(const std::filesystem::path& path, ExitCode code);
/// Where the link leads, as it is written there; empty if it is not a link.
std::filesystem::path link_target(const std::filesystem::path& link, ExitCode code);
/// Names of what is in the folder, sorted.
std::vector<std::string> names_in_folder(const std::filesystem::path& folder, ExitCode code);

// Each throws FileError(storage).
/// Renames, new names and removals in the folder are on the disk then.
void sync_folder(const std::filesystem::path& folder);
void make_folder(const std::filesystem::path& folder);  ///< one level; fails if it exists
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// Both stay, under each other's name, at one moment. False where the file system cannot.
bool exchange_paths(const std::filesystem::path& one, const std::filesystem::path& other);
/// A symbolic link that replaces the one at `link` at one moment. A kill in between leaves `.<name>.<pid>.tmp` beside
/// it.
void point_link(const std::filesystem::path& link, const std::filesystem::path& target);
void remove_file(const std::filesystem::path& path);      ///< nothing if it is not there
void remove_folder(const std::filesystem::path& folder);  ///< with all that is in it; nothing if it is not there
int64_t free_bytes(const std::filesystem::path& folder);  ///< for this user

}  // namespace trainopt
