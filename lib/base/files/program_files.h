// Files that belong to this program: its own, and shared libraries that it loads by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace trainopt {

/// This program's own file, even if another has since been built in its place.
std::filesystem::path this_program();

/// The path of a shared library of this program: in `lib` beside the program's folder, as in an installation and a
/// package, or in that of the build folder. Empty if it is in neither.
std::filesystem::path library_of_program(const std::string& name);

/// The linker's build ID of an ELF file (a program or shared library), a hash of its contents in hexadecimal digits
/// (the note NT_GNU_BUILD_ID of the ELF specification's program headers). Empty if it has none or cannot be read.
std::string build_id_of(const std::filesystem::path& file);
/// The build ID in a file's bytes. Also empty if parts are missing: the system's loader would die of a file cut short.
std::string build_id_in(std::span<const uint8_t> file);

}  // namespace trainopt
