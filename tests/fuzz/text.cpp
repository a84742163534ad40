// Token files and documents' ends: a reader returns tokens that lie in the file, or an error. The input's first byte
// chooses data.token_bits, its second how many of the other bytes are the ends.
#include "data/formats/text/document_ends.h"
#include "data/formats/text/token_file.h"

#include "base/error.h"
#include "support.h"

#include <algorithm>
#include <optional>
#include <vector>

using namespace trainopt;

namespace {

template <class F>
void only_data_errors(F f) {
  try {
    f();
  } catch (const UserError& error) {
    FUZZ_CHECK(error.code() == ExitCode::data);
  }
}

int64_t read_tokens(std::string_view bytes, std::optional<int64_t> bits) {
  const MemoryFile memory(bytes);
  const TokenFile file(memory.path(), bits);
  FUZZ_CHECK(file.bits() == 8 || file.bits() == 16 || file.bits() == 32 || file.bits() == 64);
  FUZZ_CHECK(static_cast<size_t>(file.size() * file.bits() / 8) <= bytes.size());
  std::vector<int64_t> tokens(static_cast<size_t>(std::min<int64_t>(file.size(), 1000)));
  only_data_errors([&] {
    constexpr int64_t kVocabulary = 50257;
    file.read(file.size() - static_cast<int64_t>(tokens.size()), tokens, kVocabulary);
    for (const int64_t token : tokens) FUZZ_CHECK(token >= 0 && token < kVocabulary);
  });
  file.fingerprint();
  return file.size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  constexpr std::optional<int64_t> kBits[] = {std::nullopt, 16, 32};
  const auto bits = kBits[data[0] % 3];
  const std::string_view rest = as_text(data + 2, size - 2);
  const size_t of_ends = std::min<size_t>(data[1], rest.size());
  only_data_errors([&] {
    const int64_t tokens = read_tokens(rest.substr(of_ends), bits);
    const std::vector<int64_t> ends = document_ends(rest.substr(0, of_ends), tokens, "input");
    FUZZ_CHECK(ends.size() * sizeof(int64_t) == of_ends && ends.back() == tokens && ends.front() >= kMinDocumentTokens);
    FUZZ_CHECK(std::adjacent_find(ends.begin(), ends.end(),
                                  [](int64_t a, int64_t b) { return b - a < kMinDocumentTokens; }) == ends.end());
  });
  return 0;
}
