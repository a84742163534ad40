// The archive of a program that torch.export.save wrote: a ZIP file whose members are stored uncompressed. Reading it
// runs no code: pickles among the members are not read. (Training runs the operations of the graph, of ATen alone.)
// Format: torch/export/pt2_archive/constants.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

struct zip;

namespace trainopt {

class ProgramArchive {
 public:
  /// Throws UserError(checkpoint) that says what the file is instead, if it is no such archive.
  explicit ProgramArchive(std::filesystem::path path);
  ~ProgramArchive();
  ProgramArchive(const ProgramArchive&) = delete;
  ProgramArchive& operator=(const ProgramArchive&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The names of the members in a folder of the archive, such as "models/", without it; sorted.
  std::vector<std::string> names_in(const std::string& folder) const;
  bool has(const std::string& name) const { return members_.contains(name); }
  /// Bytes of a member, which is not larger than the file. Throws UserError(checkpoint) if there is none.
  uint64_t size_of(const std::string& name) const;
  std::string text_of(const std::string& name) const;
  /// Reads a whole member into as many bytes. Throws UserError(checkpoint) if its checksum is wrong.
  void read(const std::string& name, std::span<uint8_t> into) const;
  /// For what is wrong with the content.
  [[noreturn]] void refuse(const std::string& why) const;  ///< names the file; what is not printable becomes ?

 private:
  struct Member {
    uint64_t index, bytes;
  };
  void list_members(uint64_t file_bytes);
  void require_program() const;

  std::filesystem::path path_;
  zip* file_ = nullptr;
  std::map<std::string, Member> members_;  ///< names without the archive's own folder
};

}  // namespace trainopt
