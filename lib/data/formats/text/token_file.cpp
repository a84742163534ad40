#include "data/formats/text/token_file.h"

#include "base/error.h"
#include "base/files/file_calls.h"
#include "base/files/file_kind.h"
#include "base/files/mapped_file.h"
#include "config/tree.h"
#include "data/formats/text/numpy_header.h"
#include "storage/path_kind.h"

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

TokenLayout layout_of_array(std::string_view start, int64_t bytes, std::optional<int64_t> bits,
                            const std::string& name) {
  const NumpyArray array = numpy_array(start, name);
  if (bits && *bits != array.bits)
    refuse(fmt::format("data.token_bits contradicts the header of {}, whose tokens have {} bits; remove the key: {}",
                       name, array.bits, *bits));
  if (array.count > bytes || array.data_offset + array.count * array.bits / 8 != bytes)
    refuse(fmt::format("{} was cut or does not belong to its header, which says {} tokens of {} bits: {} bytes", name,
                       array.count, array.bits, bytes));
  return {.bits = array.bits, .is_signed = array.is_signed, .header = array.data_offset, .tokens = array.count};
}

/// llm.c's other files begin like its token files, with the date at which their kind was invented.
void refuse_other_header(std::string_view start, const std::string& name) {
  if (static_cast<int64_t>(start.size()) < kTokenHeaderBytes) return;
  const auto magic = integer_at<int32_t>(start.data(), 0), version = integer_at<int32_t>(start.data(), 1);
  const int year = magic / 10000, month = magic / 100 % 100, day = magic % 100;
  if (year < 2024 || year > 2035 || month < 1 || month > 12 || day < 1 || day > 31 || version < 0 || version > 99)
    return;
  refuse(
      fmt::format("{} is no token file but another of llm.c's, such as a checkpoint or an evaluation's questions: its "
                  "magic number is {}",
                  name, magic));
}

void refuse_text(std::string_view start, const std::string& name) {
  constexpr size_t kLeast = 16;  // fewer bytes may be text by chance
  size_t at = 0;
  while (at < start.size()) {
    const auto byte = static_cast<unsigned char>(start[at]);
    const bool is_control = byte < ' ' && byte != '\n' && byte != '\r' && byte != '\t';
    const size_t length = is_control ? 0 : utf8_length(start.substr(at));
    if (length == 0) break;
    at += length;
  }
  constexpr size_t kMostCut = 3;  // bytes of a character that `start` cuts
  const size_t needed = static_cast<int64_t>(start.size()) < kTokenHeaderBytes ? start.size() : start.size() - kMostCut;
  if (start.size() >= kLeast && at >= needed)
    refuse(
        fmt::format("{} is text, not tokens; make tokens of it with scripts/data/make_text.py, or train on a folder of "
                    "texts with data.dataset: documents",
                    name));
}

template <class Integer>
void copy_tokens(const char* from, std::span<int64_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = integer_at<Integer>(from, static_cast<int64_t>(i));
}

void copy(const char* from, const TokenLayout& layout, std::span<int64_t> tokens) {
  switch (layout.bits) {
    case 8:
      return layout.is_signed ? copy_tokens<int8_t>(from, tokens) : copy_tokens<uint8_t>(from, tokens);
    case 16:
      return layout.is_signed ? copy_tokens<int16_t>(from, tokens) : copy_tokens<uint16_t>(from, tokens);
    case 32:
      return layout.is_signed ? copy_tokens<int32_t>(from, tokens) : copy_tokens<uint32_t>(from, tokens);
    default:
      return copy_tokens<int64_t>(from, tokens);  // uint64 above its range is negative, and so no token either
  }
}

/// Megatron's index beside FILE.bin: nine bytes of magic number, eight of version, a byte for the type, the numbers of
/// sequences and of documents (uint64), then the sequences' lengths (int32) and where they begin in FILE.bin (int64).
void require_index_fits(const std::string& name, int64_t bytes, int64_t bits) {
  const std::filesystem::path path = std::filesystem::path(name).replace_extension(".idx");
  if (is_remote(name) || kind_of(path) != PathKind::file) return;
  constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
  constexpr int64_t kTypeAt = 17, kLengthsAt = 34;
  const File index = File::open(path, ExitCode::data);
  std::string start(kLengthsAt, '\0');
  start.resize(index.read_at(0, start.data(), start.size()));
  if (!start.starts_with(kMagic)) return;
  if (std::ssize(start) < kLengthsAt) refuse(fmt::format("{} was cut: it ends within its header", path.string()));
  constexpr std::array kTypes = {"uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"};
  constexpr std::array<int64_t, 8> kBits = {8, 8, 16, 32, 64, 0, 0, 16};
  const size_t type = static_cast<unsigned char>(start[kTypeAt]) - size_t{1};
  const int64_t wanted = type < kTypes.size() ? kBits[type] : 0;
  if (wanted != bits)
    refuse(fmt::format("{} says that the tokens of {} are {}; {}", path.string(), name,
                       type < kTypes.size() ? kTypes[type] : "of an unknown type",
                       wanted == 16 || wanted == 32 ? fmt::format("set data.token_bits: {}", wanted)
                                                    : "write them with 16 or 32 bits"));
  const auto sequences = integer_at<int64_t>(start.data() + kTypeAt + 1, 0);
  if (sequences < 1 || sequences > index.size()) return;
  int32_t length = 0;
  int64_t begin = 0;
  const int64_t last_length = kLengthsAt + 4 * (sequences - 1),
                last_begin = kLengthsAt + 4 * sequences + 8 * (sequences - 1);
  const bool is_whole = index.read_at(last_length, &length, sizeof(length)) == sizeof(length) &&
                        index.read_at(last_begin, &begin, sizeof(begin)) == sizeof(begin);
  const bool fits = is_whole && length >= 0 && begin >= 0 && begin <= bytes && begin + length * (bits / 8) == bytes;
  if (!fits)
    refuse(fmt::format("{} was cut, or does not belong to its index {}: {} bytes", name, path.string(), bytes));
}

/// The layout of the file `name`. `start`: its first kTokenHeaderBytes, or all of it; `bytes`: its size. `bits`: of the
/// tokens of a file without a header (null: 16). Throws UserError(data) as TokenFile().
TokenLayout token_layout(std::string_view start, int64_t bytes, std::optional<int64_t> bits, const std::string& name) {
  if (start.size() >= sizeof(int32_t))
    for (const HeaderKind& kind : kHeaders)
      if (integer_at<int32_t>(start.data(), 0) == kind.magic)
        return layout_after_header(kind, start, bytes, bits, name);
  if (start.starts_with(kNumpyMagic)) return layout_of_array(start, bytes, bits, name);
  refuse_other_header(start, name);
  refuse_text(start, name);
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
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  constexpr size_t kTelling = 3;  // bytes; a token may be any two
  if (const auto kind = what_it_is(text, kTelling); !kind.empty() && !text.starts_with(kNumpyMagic))
    refuse(fmt::format("{} is not a token file but {}", name(), kind));
  layout_ = token_layout(text, file_->size(), bits, name());
  if (layout_.header > 0) return;
  require_index_fits(name(), file_->size(), layout_.bits);
  require_fitting_bits(text, bits);
}

namespace {

/// The largest value at each position within four tokens, which tells that they are halves or quarters of larger ones.
class Positions {
 public:
  void add(const char* bytes, int64_t count, const TokenLayout& layout) {
    std::vector<int64_t> tokens(static_cast<size_t>(count));
    copy(bytes, layout, tokens);
    for (size_t i = 0; i < tokens.size(); ++i) largest_[i % 4] = std::max(largest_[i % 4], tokens[i]);
  }
  /// How many times as wide the tokens probably are.
  int64_t width() const {
    constexpr int64_t kHighest = 7;  // upper halves are not larger: vocabularies end below 524,288
    const auto [first, second, third, fourth] = largest_;
    const bool are_zero = second == 0 && fourth == 0;
    if (second > kHighest || fourth > kHighest || first < (are_zero ? 1 : 256)) return 1;
    return third == 0 && fourth == 0 ? 4 : 2;
  }

 private:
  std::array<int64_t, 4> largest_{};
};

}  // namespace

/// Tokens of 32 or 64 bits that are read as 16-bit ones have zeros, or small numbers, for every second value or more.
/// `start`: the file's first bytes, which alone rule that out for nearly every file.
void TokenFile::require_fitting_bits(std::string_view start, std::optional<int64_t> bits) {
  constexpr int64_t kLeast = 64, kPart = 1024;  // tokens
  if (size() < kLeast) return;
  Positions positions;
  positions.add(start.data(), std::ssize(start) * 8 / layout_.bits, layout_);
  std::vector<uint8_t> scratch;
  for (const int64_t wanted : {size() / 2, size() - kPart}) {
    if (positions.width() == 1) return;
    const int64_t first = std::max<int64_t>(0, wanted) / 4 * 4, count = std::min(kPart, size() - first);
    const auto bytes = file_->read(byte_of(first), count * layout_.bits / 8, scratch);
    positions.add(reinterpret_cast<const char*>(bytes.data()), count, layout_);
  }
  require_mapped_files_whole();
  if (positions.width() == 1) return;
  const int64_t found = layout_.bits * positions.width();
  const std::string what =
      fmt::format("{} looks like tokens of {} bits: read as {}-bit ones, every other value is almost 0", name(), found,
                  layout_.bits);
  if (bits && found == 32) {
    caution_ = what + "; data.token_bits says that this is meant";
    return;
  }
  refuse(found == 32 ? what + "; set data.token_bits: 32, or 16 if this is meant"
                     : what + "; write them with 16 or 32 bits");
}

void TokenFile::read(int64_t first, std::span<int64_t> tokens, int64_t vocabulary) const {
  TRAINOPT_CHECK(first >= 0 && first + std::ssize(tokens) <= size());
  thread_local std::vector<uint8_t> scratch;
  const auto bytes = file_->read(byte_of(first), std::ssize(tokens) * layout_.bits / 8, scratch);
  const char* from = reinterpret_cast<const char*>(bytes.data());
  copy(from, layout_, tokens);
  require_mapped_files_whole();
  const auto outside =
      std::find_if(tokens.begin(), tokens.end(), [=](int64_t token) { return token < 0 || token >= vocabulary; });
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
