#include "data/formats/other_kind.h"

#include "base/error.h"
#include "base/files/file_kind.h"
#include "base/files/mapped_file.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace trainopt {

void refuse_other_kind(const DataFile& file, std::string_view wanted) {
  if (file.size() == 0) throw UserError(fmt::format("the file is empty: {}", file.name()), ExitCode::data);
  std::vector<uint8_t> scratch;
  const auto bytes = file.read(0, std::min(file.size(), kKindBytes), scratch);
  const std::string_view kind = what_it_is(bytes);
  require_mapped_files_whole();
  if (kind.empty() || kind.starts_with(wanted)) return;
  constexpr std::array<std::array<std::string_view, 2>, 4> kAdvice = {
      {{"a Parquet file", "; set data.dataset: parquet"},
       {"a tar file", "; set data.dataset: tar"},
       {"a packed file of trainopt", "; set data.dataset: packed"},
       {"an Arrow file", "; write it as Parquet"}}};
  std::string_view advice;
  for (const auto& [of, what_to_do] : kAdvice)
    if (of == kind) advice = what_to_do;
  throw UserError(fmt::format("{} is not {} but {}{}", file.name(), wanted, kind, advice), ExitCode::data);
}

}  // namespace trainopt
