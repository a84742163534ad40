// Writes a program's archive again, with other bytes in some of its members.
#pragma once

#include "model/program/archive.h"

#include <filesystem>
#include <map>
#include <string>

namespace trainopt {

/// `changed`: new bytes of members, by their name without the archive's own folder; all other members are copied. `to`
/// must not exist; it is complete or not there at all. Throws UserError(storage) if it cannot be written.
void copy_archive(const ProgramArchive& from, const std::filesystem::path& to,
                  const std::map<std::string, std::string>& changed);

}  // namespace trainopt
