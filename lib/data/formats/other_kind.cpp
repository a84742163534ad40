#include "data/formats/other_kind.h"

#include "base/error.h"
#include "base/files/file_kind.h"
#include "base/files/mapped_file.h"

#include <algorithm>
#include <vector>

namespace trainopt {

void refuse_other_kind(const DataFile& file, std::string_view wanted, size_t least) {
  std::vector<uint8_t> scratch;
  const auto bytes = file.read(0, std::min(file.size(), kKindBytes), scratch);
  const std::string_view kind = what_it_is(bytes, least);
  require_mapped_files_whole();
  if (kind.empty() || kind.starts_with(wanted)) return;
  throw UserError(fmt::format("{} is not {} but {}", file.name(), wanted, kind), ExitCode::data);
}

}  // namespace trainopt
