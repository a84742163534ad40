#include "data/formats/text/document_ends.h"

#include "base/error.h"

#include <cstring>

namespace trainopt {

std::vector<int64_t> document_ends(std::string_view bytes, int64_t tokens, const std::string& name) {
  const auto refuse = [](const std::string& sentence) { throw UserError(sentence, ExitCode::data); };
  if (bytes.empty() || bytes.size() % sizeof(uint64_t) != 0)
    refuse(fmt::format("{} must hold the documents' ends, 8 bytes each: {} bytes", name, bytes.size()));
  std::vector<int64_t> ends(bytes.size() / sizeof(uint64_t));
  int64_t before = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    uint64_t end = 0;
    std::memcpy(&end, bytes.data() + i * sizeof(end), sizeof(end));
    if (end > static_cast<uint64_t>(tokens))
      refuse(fmt::format("{}: document {} ends beyond the {} tokens of its file: {}", name, i, tokens, end));
    ends[i] = static_cast<int64_t>(end);
    if (ends[i] < before)
      refuse(fmt::format("{}: the ends must ascend, but document {} ends at {}, after {}", name, i, end, before));
    if (ends[i] - before < kMinDocumentTokens)
      refuse(fmt::format("{}: document {} has nothing to predict, which takes {} tokens; remove it: {} to {}", name, i,
                         kMinDocumentTokens, before, end));
    before = ends[i];
  }
  if (before != tokens)
    refuse(
        fmt::format("{}: the last document must end where its file's tokens do: {}, {} tokens", name, before, tokens));
  return ends;
}

std::filesystem::path ends_path(const std::filesystem::path& token_file) {
  return std::filesystem::path(token_file).replace_extension(".ends");
}

}  // namespace trainopt
