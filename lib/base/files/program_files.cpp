#include "base/files/program_files.h"

#include "base/error.h"
#include "base/files/mapped_file.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

namespace trainopt {
namespace {

using FileBytes = std::span<const uint8_t>;

/// The structure at `offset`; nullopt if it is not all there.
template <class T>
std::optional<T> read_at(FileBytes file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

FileBytes part_of(FileBytes file, uint64_t offset, uint64_t size) {
  const uint64_t first = std::min<uint64_t>(offset, file.size());
  return file.subspan(first, std::min<uint64_t>(size, file.size() - first));
}

std::string build_id_in_notes(FileBytes notes) {
  const auto padded = [](uint64_t bytes) { return (bytes + 3) / 4 * 4; };
  uint64_t at = 0;
  while (const auto note = read_at<Elf64_Nhdr>(notes, at)) {
    const uint64_t name = at + sizeof *note, content = name + padded(note->n_namesz);
    const FileBytes owner = part_of(notes, name, note->n_namesz), id = part_of(notes, content, note->n_descsz);
    const std::string_view owner_name(reinterpret_cast<const char*>(owner.data()), owner.size());
    if (note->n_type == NT_GNU_BUILD_ID && owner_name == std::string_view("GNU\0", 4))
      return fmt::format("{:02x}", fmt::join(id, ""));
    at = content + padded(note->n_descsz);
  }
  return {};
}

}  // namespace

std::filesystem::path this_program() { return "/proc/self/exe"; }

std::filesystem::path library_of_program(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return {};
  if (fs::path beside = program.parent_path() / "lib" / name; fs::exists(beside, error)) return beside;
  for (fs::path folder = program; folder.has_relative_path(); folder = folder.parent_path())
    if (fs::exists(folder / "CMakeCache.txt", error)) {
      const fs::path built = folder / "lib" / name;
      return fs::exists(built, error) ? built : fs::path();
    }
  return {};
}

std::string build_id_in(FileBytes file) {
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (header->e_ident[EI_CLASS] != ELFCLASS64) return {};
  std::string id;
  for (uint64_t i = 0; i < header->e_phnum; ++i) {
    const auto part = read_at<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!part || part->p_offset > file.size() || part->p_filesz > file.size() - part->p_offset) return {};
    if (part->p_type == PT_NOTE && id.empty()) id = build_id_in_notes(part_of(file, part->p_offset, part->p_filesz));
  }
  return id;
}

std::string build_id_of(const std::filesystem::path& file) {
  try {
    return build_id_in(MappedFile(file, ExitCode::recipe).bytes());
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace trainopt
