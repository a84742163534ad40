// What `data show` says of token files.
#pragma once

#include "base/json.h"
#include "storage/data_files.h"

#include <cstdint>
#include <optional>
#include <string>

namespace trainopt {

/// Whether `path` is a token file, or a folder of them, here or in object storage.
bool is_tokens(const std::string& path, DataFiles& files);

/// Each file's number of tokens, largest token, documents (null without a file of their ends, and for a remote file,
/// whose ends are not read) and first `rows` tokens. `bits`: a token's size in files without llm.c's header; null: 16.
/// Throws UserError(data).
Json tokens_json(const std::string& path, int64_t rows, std::optional<int64_t> bits, DataFiles& files);
void print_tokens(const Json& shown);

}  // namespace trainopt
