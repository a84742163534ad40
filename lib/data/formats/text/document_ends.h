// Where the documents in a token file end: a file of little-endian uint64, one for each document, counted in tokens
// from the file's first one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// Fewest tokens of a document: one to begin with, and one to predict.
inline constexpr int64_t kMinDocumentTokens = 2;

/// `bytes`: the contents of the file `name`; `tokens`: of the token file. Throws UserError(data) with the numbers if
/// the ends do not ascend, a document has fewer than kMinDocumentTokens, or the last one does not end with the tokens.
std::vector<int64_t> document_ends(std::string_view bytes, int64_t tokens, const std::string& name);

/// `train.ends` for `train.bin`.
std::filesystem::path ends_path(const std::filesystem::path& token_file);

}  // namespace trainopt
