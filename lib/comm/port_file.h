// Where rank 0 publishes its port for ranks of the same machine whose launcher gives no address (mpirun, srun).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trainopt {

/// `<folder>/trainopt-<user id>/port-<job>`. Only this user can read it, or put a file there.
class PortFile {
 public:
  /// `folder`: for temporary files. Throws UserError(storage) if it does not exist, or if somebody else has the folder
  /// of this user's name in it.
  PortFile(const std::filesystem::path& folder, const std::string& job);

  const std::filesystem::path& path() const { return path_; }

  struct Contents {
    int port = 0;
    std::string key;
  };
  void write(const Contents& contents) const;
  /// nullopt if there is no such file, or if it is not one that this user wrote.
  std::optional<Contents> read() const;

 private:
  std::filesystem::path path_;
};

}  // namespace trainopt
