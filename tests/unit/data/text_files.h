// Files of tokens and documents with known contents.
#pragma once

#include "bad_files.h"

#include "data/formats/text/text_dataset.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

namespace trainopt::test {

template <class Integer>
std::string as_bytes(const std::vector<int64_t>& values) {
  std::string bytes;
  for (const int64_t value : values) {
    const auto stored = static_cast<Integer>(value);
    bytes.append(reinterpret_cast<const char*>(&stored), sizeof(stored));
  }
  return bytes;
}

/// llm.c's header.
inline std::string header(int32_t magic, int32_t version, int64_t tokens) {
  std::vector<int64_t> values(256);
  values[0] = magic, values[1] = version, values[2] = tokens;
  return as_bytes<int32_t>(values);
}

/// first, first + 1, …
inline std::vector<int64_t> counting(int64_t count, int64_t first = 0) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// A token file with the numbers from 0 and documents of these lengths in it.
inline std::string write_documents(const std::filesystem::path& path, const std::vector<int64_t>& lengths) {
  std::vector<int64_t> ends(lengths.size());
  std::partial_sum(lengths.begin(), lengths.end(), ends.begin());
  write_bytes(path, as_bytes<uint16_t>(counting(ends.back())));
  write_bytes(std::filesystem::path(path).replace_extension(".ends"), as_bytes<uint64_t>(ends));
  return path.string();
}

inline std::vector<int64_t> tokens_of(const TextDataset& text, int64_t sample) {
  std::vector<int64_t> tokens(static_cast<size_t>(text.target_tokens(sample) + 1));
  text.read(sample, tokens);
  return tokens;
}

}  // namespace trainopt::test
