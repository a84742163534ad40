// Faults of the file system at a chosen call: an error, a short write, a kill, a power failure.
#pragma once

#include "base/files/file_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

namespace trainopt {

/// Calls are counted from 1.
enum class FaultKind {
  once,          ///< call k fails
  from_then_on,  ///< all calls from k on fail
  short_write,   ///< if call k is a write, it writes half of its bytes, and the next write fails
  kill,          ///< the process ends before call k
  short_kill,    ///< if call k is a write, it writes half of its bytes; the process ends before the next call
};

/// Only counts the calls before call `at`.
class FaultAt : public FileFaults {
 public:
  explicit FaultAt(int64_t at = 0, FaultKind kind = FaultKind::once, int error = EIO)
      : at_(at), kind_(kind), error_(error) {}
  int64_t calls() const { return calls_; }

  int before(FileCall call, const std::filesystem::path&, size_t& bytes) override {
    const int64_t number = ++calls_;
    if (at_ == 0 || number < at_) return 0;
    const bool here = number == at_;
    switch (kind_) {
      case FaultKind::once:
        return here ? error_ : 0;
      case FaultKind::from_then_on:
        return error_;
      case FaultKind::short_write:
        if (call == FileCall::write && shortened_) return std::exchange(shortened_, false) ? error_ : 0;
        shortened_ = shortened_ || shorten(here, call, bytes);
        return 0;
      case FaultKind::kill:
        ::_exit(kKilled);
      case FaultKind::short_kill:
        if (!here) ::_exit(kKilled);
        shorten(here, call, bytes);
        return 0;
    }
    return 0;
  }

  static constexpr int kKilled = 77;

 private:
  static bool shorten(bool here, FileCall call, size_t& bytes) {
    if (!here || call != FileCall::write || bytes < 2) return false;
    bytes /= 2;
    return true;
  }

  int64_t at_;
  FaultKind kind_;
  int error_;
  std::atomic<int64_t> calls_ = 0;
  bool shortened_ = false;
};

/// Which names in a folder survive a power failure: those present at its last fsync, or all that a running system would
/// see. A disk may have written more than it was asked to, which varies by folder and by name. A file keeps its bytes
/// up to its last fsync and half of those written later.
struct Survival {
  bool synced_names_in_root, synced_names_below;
  bool all_links = false;  ///< links survive as a running system would see them, whatever happens to other names
};

/// Before call `at`, writes what a power failure would leave of `root` to `after`, and ends the process. All folders
/// are in `root`. The fsync number `failing_sync`, counted from 1, fails.
class PowerFailure : public FileFaults {
 public:
  PowerFailure(const std::filesystem::path& root, const std::filesystem::path& after, Survival survival, int64_t at,
               int64_t failing_sync = 0)
      : root_(root), after_(after), survival_(survival), at_(at), failing_sync_(failing_sync), synced_(state()) {}

  int before(FileCall call, const std::filesystem::path& path, size_t&) override {
    if (++calls_ == at_) {
      write_down();
      ::_exit(FaultAt::kKilled);
    }
    if (call != FileCall::sync) return 0;
    if (++syncs_ == failing_sync_) return EIO;
    remember(path);
    return 0;
  }

 private:
  struct Entry {
    ino_t node;
    char kind;                     ///< f, d, l
    std::filesystem::path target;  ///< of a link
  };
  using Names = std::map<std::string, Entry>;
  struct State {
    std::map<ino_t, std::string> bytes;
    std::map<ino_t, Names> names;
  };

  /// The inode number of `path`, which stays open so that the number is not reused.
  static ino_t node_of(const std::filesystem::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) throw std::runtime_error("lstat " + path.string());
    if (::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC) < 0) throw std::runtime_error("open " + path.string());
    return status.st_ino;
  }

  static std::string bytes_of(const std::filesystem::path& path) {
    std::stringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
  }

  static Names names_of(const std::filesystem::path& folder) {
    Names names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const char kind = entry.is_symlink() ? 'l' : entry.is_directory() ? 'd' : 'f';
      names[entry.path().filename()] = {node_of(entry.path()), kind,
                                        kind == 'l' ? std::filesystem::read_symlink(entry) : ""};
    }
    return names;
  }

  State state() const {
    State state;
    const std::function<void(const std::filesystem::path&)> walk = [&](const std::filesystem::path& folder) {
      const Names& names = state.names[node_of(folder)] = names_of(folder);
      for (const auto& [name, entry] : names) {
        if (entry.kind == 'd') walk(folder / name);
        if (entry.kind == 'f') state.bytes[entry.node] = bytes_of(folder / name);
      }
    };
    walk(root_);
    return state;
  }

  void remember(const std::filesystem::path& path) {
    if (std::filesystem::is_directory(path))
      synced_.names[node_of(path)] = names_of(path);
    else
      synced_.bytes[node_of(path)] = bytes_of(path);
  }

  void write_down() {
    State now = state();
    for (const auto& [node, names] : now.names)
      for (const auto& [name, entry] : names)
        if (entry.kind == 'l' && survival_.all_links) synced_.names[node][name] = entry;
    const std::function<void(ino_t, const std::filesystem::path&, bool)> build =
        [&](ino_t node, const std::filesystem::path& to, bool synced) {
          std::filesystem::create_directory(to);
          for (const auto& [name, entry] : (synced ? synced_ : now).names[node]) {
            if (entry.kind == 'd') build(entry.node, to / name, survival_.synced_names_below);
            if (entry.kind == 'l') std::filesystem::create_symlink(entry.target, to / name);
            if (entry.kind == 'f') std::ofstream(to / name, std::ios::binary) << survivor(now, entry.node);
          }
        };
    build(node_of(root_), after_, survival_.synced_names_in_root);
  }

  std::string survivor(State& now, ino_t node) {
    const std::string& synced = synced_.bytes[node];
    const std::string& written = now.bytes[node];
    return written.size() > synced.size() ? written.substr(0, synced.size() + (written.size() - synced.size()) / 2)
                                          : synced;
  }

  std::filesystem::path root_, after_;
  Survival survival_;
  int64_t at_, failing_sync_, calls_ = 0, syncs_ = 0;
  State synced_;
};

/// Runs `work` in a child process with these faults; true if a fault ended it.
template <class Faults, class Work>
bool killed(const std::function<Faults()>& make_faults, const Work& work) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    try {
      Faults faults = make_faults();
      const ScopedFileFaults scope(faults);
      work();
      ::_exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child process: %s\n", error.what());
    }
    ::_exit(1);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != FaultAt::kKilled))
    throw std::runtime_error("the child process failed");
  return WEXITSTATUS(status) == FaultAt::kKilled;
}

}  // namespace trainopt
