// What a file is that a reader cannot read.
#pragma once

#include "storage/data_file.h"

#include <string_view>

namespace trainopt {

/// Throws UserError(data) with what the file is, and what to do, if its first bytes are those of another known kind
/// (base/files/file_kind.h). `wanted`: "a tar file".
void refuse_other_kind(const DataFile& file, std::string_view wanted);

}  // namespace trainopt
