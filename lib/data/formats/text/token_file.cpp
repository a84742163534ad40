#include "data/formats/text/token_file.h"

#include "base/error.h"
#include "base/files/mapped_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

namespace trainopt {
namespace {

static_assert(std::endian::native == std::endian::little);

struct HeaderKind {
  int32_t magic, version;
  int64_t bits;
};
constexpr std::array kHeaders = {HeaderKind{20240520, 1, 16}, HeaderKind{20240801, 7, 32}};

template <class Integer>
Integer integer_at(const char* bytes, int64_t index) {
  Integer value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(Integer)), sizeof(Integer));
  return value;
}

[[noreturn]] void refuse(const std::string& sentence) { throw UserError(sentence, ExitCode::data); }

TokenLayout layout_after_header(const HeaderKind& kind, std::string_view start, int64_t bytes,
                                std::optional<int64_t> bits, const std::string& name) {
  if (static_cast<int64_t>(start.size()) < kTokenHeaderBytes)
    refuse(fmt::format("{} ends within llm.c's header, which has {} bytes: {} bytes", name, kTokenHeaderBytes, bytes));
  if (const auto version = integer_at<int32_t>(start.data(), 1); version != kind.version)
    refuse(fmt::format("{} has an unknown version of llm.c's header with magic number {}; {} is known: {}", name,
                       kind.magic, kind.version, version));
  if (bits && *bits != kind.bits)
    refuse(fmt::format("data.token_bits contradicts the header of {}, whose tokens have {} bits; remove the key: {}",
                       name, kind.bits, *bits));
  const int64_t promised = integer_at<int32_t>(start.data(), 2),
                expected = kTokenHeaderBytes + promised * kind.bits / 8;
  if (promised < 0 || bytes != expected)
    refuse(
        fmt::format("{} was cut or does not belong to its header, which says {} tokens of {} bits, {} bytes with "
                    "the header: {} bytes",
                    name, promised, kind.bits, expected, bytes));
  return {.bits = kind.bits, .header = kTokenHeaderBytes, .tokens = promised};
}

template <class Integer>
void copy_tokens(const char* from, std::span<int64_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = integer_at<Integer>(from, static_cast<int64_t>(i));
}

/// The layout of the file `name`. `start`: its first kTokenHeaderBytes, or all of it; `bytes`: its size. `bits`: of the
/// tokens of a file without a header (null: 16). Throws UserError(data) with the numbers if a header contradicts the
/// file's size or `bits`, or if the size is not a whole number of tokens.
TokenLayout token_layout(std::string_view start, int64_t bytes, std::optional<int64_t> bits, const std::string& name) {
  if (start.size() >= sizeof(int32_t))
    for (const HeaderKind& kind : kHeaders)
      if (integer_at<int32_t>(start.data(), 0) == kind.magic)
        return layout_after_header(kind, start, bytes, bits, name);
  const int64_t raw_bits = bits.value_or(16), token_bytes = raw_bits / 8;
  if (bytes % token_bytes != 0)
    refuse(
        fmt::format("{} was cut or does not hold {}-bit tokens (data.token_bits): its size is not a multiple of {}: "
                    "{} bytes",
                    name, raw_bits, token_bytes, bytes));
  return {.bits = raw_bits, .header = 0, .tokens = bytes / token_bytes};
}

}  // namespace

TokenFile::TokenFile(std::unique_ptr<const DataFile> file, std::optional<int64_t> bits) : file_(std::move(file)) {
  std::vector<uint8_t> scratch;
  const auto start = file_->read(0, std::min(file_->size(), kTokenHeaderBytes), scratch);
  layout_ = token_layout({reinterpret_cast<const char*>(start.data()), start.size()}, file_->size(), bits, name());
}

void TokenFile::read(int64_t first, std::span<int64_t> tokens, int64_t vocabulary) const {
  TRAINOPT_CHECK(first >= 0 && first + std::ssize(tokens) <= size());
  thread_local std::vector<uint8_t> scratch;
  const auto bytes = file_->read(byte_of(first), std::ssize(tokens) * layout_.bits / 8, scratch);
  const char* from = reinterpret_cast<const char*>(bytes.data());
  layout_.bits == 16 ? copy_tokens<uint16_t>(from, tokens) : copy_tokens<uint32_t>(from, tokens);
  require_mapped_files_whole();
  const auto outside = std::find_if(tokens.begin(), tokens.end(), [=](int64_t token) { return token >= vocabulary; });
  if (outside == tokens.end()) return;
  const int64_t index = first + (outside - tokens.begin());
  refuse(fmt::format("{} has a token that is not below model.vocabulary ({}): {}, token {} of the file, at byte {}",
                     name(), vocabulary, *outside, index, byte_of(index)));
}

uint64_t TokenFile::fingerprint() const {
  const int64_t ends = std::min<int64_t>(file_->size(), 64 * 1024);
  if (ends == 0) return 0;
  std::vector<uint8_t> scratch;
  const auto hash = [&](int64_t offset, uint64_t seed) {
    return XXH3_64bits_withSeed(file_->read(offset, ends, scratch).data(), static_cast<size_t>(ends), seed);
  };
  const uint64_t fingerprint = hash(file_->size() - ends, hash(0, static_cast<uint64_t>(file_->size())));
  require_mapped_files_whole();
  return fingerprint;
}

}  // namespace trainopt
