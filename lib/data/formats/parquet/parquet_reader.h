// What trainopt reads of Parquet files. Arrow does it; the code that calls it is in a shared object of its own
// (arrow/), which is loaded when the first Parquet file is opened. This header and parquet_output.h are all that the
// two share.
#pragma once

#include "storage/data_file.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

enum class ParquetKind { integers, reals, bytes, other };

/// A leaf of the schema, with dots in its name: "image.bytes".
struct ParquetColumn {
  std::string name;
  std::string type;  ///< for messages: "INT64"
  ParquetKind kind = ParquetKind::other;
  int levels = 0;  ///< number of lists around each value; 0: one value a row
};

/// A column's values in one row group.
struct ParquetChunk {
  int64_t offset = 0, bytes = 0;      ///< its place in the file
  int64_t decoded_bytes = 0;          ///< decompressed
  std::optional<double> least, most;  ///< numbers only; null: the file does not say
};

struct ParquetGroup {
  int64_t rows = 0;
  std::vector<ParquetChunk> chunks;  ///< one for each column
};

struct ParquetLayout {
  int64_t rows = 0;  ///< as the file says
  std::vector<ParquetColumn> columns;
  std::vector<ParquetGroup> groups;
  std::string huggingface;  ///< metadata that Hugging Face's datasets writes: JSON; empty if there is none
  std::string comment;      ///< metadata of `trainopt data pack`; empty if there is none
};

/// The values of one column in one row group.
struct ParquetBytes {
  std::vector<uint8_t> bytes;  ///< one value after the other
  std::vector<int64_t> ends;   ///< end of each row's value; a missing one is empty
};
struct ParquetNumbers {
  std::vector<double> values;  ///< one after the other; 0 where one is missing
  std::vector<bool> missing;   ///< one for each value
  std::vector<int64_t> ends;   ///< end of each row's values
  /// For each list level, outermost first, how many values each of its lists has, if all have as many; else 0.
  std::vector<int64_t> list_lengths;
};

/// Safe to use from many threads. Throws std::runtime_error with what Arrow says, std::length_error for what takes more
/// than the limit of memory, and what DataFile throws.
class ParquetReader {
 public:
  virtual ~ParquetReader() = default;
  virtual const ParquetLayout& layout() const = 0;
  virtual ParquetBytes read_bytes(int64_t group, int64_t column) const = 0;
  virtual ParquetNumbers read_numbers(int64_t group, int64_t column) const = 0;
};

/// How many bytes at once are read of a long range. The same for reads and for their announcements.
inline constexpr int64_t kParquetPiece = int64_t{4} << 20;

/// Key of the metadata by which `trainopt data pack` knows its files.
inline constexpr const char* kParquetComment = "trainopt";

/// The shared object's function. `memory_limit`: bytes of what one call returns, and of what Arrow holds for it.
using OpenParquet = std::unique_ptr<ParquetReader>(std::shared_ptr<const DataFile> file, int64_t memory_limit);
/// The number changes with this header, so that a program and a shared object of different builds do not meet.
inline constexpr const char* kOpenParquet = "trainopt_open_parquet_1";

}  // namespace trainopt
