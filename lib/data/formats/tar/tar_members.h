// The members of a tar file: ustar, GNU and pax headers (POSIX.1-2017, pax; GNU tar manual, "Basic Tar Format").
// Nothing is ever extracted. Without libtorch.
#pragma once

#include "data/files/left_out.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace trainopt {

/// A regular file in the tar file.
struct TarMember {
  std::string name;
  int64_t header = 0;  ///< offset of its first header block
  int64_t offset = 0, bytes = 0;
  int64_t archive = 0;  ///< counts the tar files that were put together
};

/// These bytes of a tar file, which lie within it. Valid until the next call.
using TarBytes = std::function<std::string_view(int64_t offset, int64_t bytes)>;

/// Calls `found` for each regular member of a tar file of `size` bytes in order, also of several tar files one after
/// the other (`cat a.tar b.tar`). Directories are skipped, and what follows the end is added to `left_out`. Returns the
/// comment of the last pax global header, or "". Throws UserError(data) with `file`, the offset and the member for a
/// header that is damaged or of a member that is cut, for a link, a device, a sparse file, a name with `..` or from
/// `/`, and if the two empty blocks are missing with which a tar file ends.
std::string read_tar(int64_t size, const TarBytes& bytes, const std::string& file,
                     const std::function<void(const TarMember&)>& found, LeftOut& left_out);
/// read_tar() for a tar file in memory.
std::string read_tar(std::string_view tar, const std::string& file, const std::function<void(const TarMember&)>& found);
/// Whether these bytes, a file's first, begin a tar file.
bool is_tar(std::string_view start);

/// Blocks of a header that read_tar() reads back; `name`: at most 100 bytes.
std::string tar_header(std::string_view name, int64_t bytes);
/// A pax global header with this comment.
std::string tar_comment(std::string_view comment);
/// Zeros that fill the last block of a member.
std::string tar_padding(int64_t bytes);
inline constexpr int64_t kTarBlock = 512;

}  // namespace trainopt
