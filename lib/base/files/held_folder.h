// A folder that the process goes on using after its name has changed or leads elsewhere.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace trainopt {

/// Keeps the folder open. While the object lives, every call of file_calls.h on a path that begins with the folder's
/// name, as it was spelled here, reaches the folder that was opened: renamed, it is followed, and a folder that has
/// taken its name is not touched. Calls of std::filesystem and of libraries still go by the name; path_for_others() is
/// for those.
class HeldFolder {
 public:
  /// Throws FileError(storage).
  explicit HeldFolder(const std::filesystem::path& folder);
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  enum class Name {
    leads_here,
    gone,       ///< the folder was renamed, and its old name is free
    taken,      ///< the folder was renamed, and its old name leads to another folder or file
    no_folder,  ///< the folder was removed
  };
  /// Where the folder's name leads. `leads_here` also where that cannot be found out.
  Name name() const;
  /// The folder's path as the kernel knows it. Its name as it was spelled, if that cannot be found out.
  std::filesystem::path now() const;

 private:
  friend struct HeldPlace;
  friend std::filesystem::path path_for_others(const std::filesystem::path& path);
  /// The held folder that `path` is in, if any, and what follows its name. The mutex must be held.
  static std::pair<const HeldFolder*, std::string> find(const std::string& path);
  std::string path_;  ///< without a slash at its end
  int fd_;
};

/// `path` as the system calls that take an open folder want it: `name` is relative to `folder`.
struct HeldPlace {
  explicit HeldPlace(const std::filesystem::path& path);
  int folder;  ///< a held folder's descriptor, or AT_FDCWD
  std::string name;
};
/// For code that opens files by name: `path` itself, unless it is in a held folder whose name no longer leads there.
std::filesystem::path path_for_others(const std::filesystem::path& path);

}  // namespace trainopt
