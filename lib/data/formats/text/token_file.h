// A memory-mapped file of tokens: little-endian integers, either nothing else (nanoGPT's), or after llm.c's or NumPy's
// header.
#pragma once

#include "storage/data_file.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trainopt {

inline constexpr std::array<std::string_view, 2> kTokenEndings = {".bin", ".npy"};  ///< how token files in a folder end

/// Where a file's tokens are.
struct TokenLayout {
  int64_t bits = 16;  ///< a token's bits: 16 or 32; in an array of NumPy also 8 or 64
  bool is_signed = false;
  int64_t header = 0;  ///< bytes before the first token
  int64_t tokens = 0;
};

/// llm.c's header is 256 int32, little-endian: magic number, version, number of tokens, zeros. Magic 20240520 with
/// version 1 has 16-bit tokens, magic 20240801 with version 7 32-bit ones. As the first two 16-bit tokens of a raw file
/// they would be 55432 or 55713, both beyond GPT-2's vocabulary, then 308.
inline constexpr int64_t kTokenHeaderBytes = 256 * 4;

/// Safe to read from many threads.
class TokenFile {
 public:
  /// `bits`: of the tokens of a file without a header (null: 16). Throws UserError(data) if the file cannot be read,
  /// with the numbers if a header contradicts the file's size or `bits`, or if the size is not a whole number of
  /// tokens; and with the reason if what the file holds looks like no tokens, or like tokens of another size.
  TokenFile(std::unique_ptr<const DataFile> file, std::optional<int64_t> bits);
  TokenFile(const std::filesystem::path& path, std::optional<int64_t> bits) : TokenFile(open_local_file(path), bits) {}

  const DataFile& file() const { return *file_; }
  const std::string& name() const { return file_->name(); }
  int64_t size() const { return layout_.tokens; }  ///< in tokens
  int64_t bits() const { return layout_.bits; }
  /// What is odd about the file although the recipe asks to read it so; usually empty.
  const std::string& caution() const { return caution_; }
  /// Writes the tokens from `first` on. Throws UserError(data), naming the file and the token's position, for a token
  /// that is not below `vocabulary`, and if the file has become shorter since it was opened.
  void read(int64_t first, std::span<int64_t> tokens, int64_t vocabulary) const;
  int64_t reads_ahead() const { return file_->reads_ahead(); }
  /// Announces a read() of as many tokens.
  void expect(int64_t first, int64_t tokens) const { file_->expect(byte_of(first), tokens * layout_.bits / 8); }
  /// A hash of size, first bytes and last bytes: not of all, which may be terabytes.
  uint64_t fingerprint() const;

 private:
  void require_fitting_bits(std::string_view start, std::optional<int64_t> bits);
  int64_t byte_of(int64_t token) const { return layout_.header + token * layout_.bits / 8; }

  std::unique_ptr<const DataFile> file_;
  TokenLayout layout_;
  std::string caution_;
};

}  // namespace trainopt
