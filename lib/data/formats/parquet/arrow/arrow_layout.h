// What a Parquet file's footer says, from Arrow's metadata.
#pragma once

#include "data/formats/parquet/parquet_reader.h"

#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <cstdint>
#include <type_traits>

namespace trainopt {

ParquetLayout layout_of(const parquet::FileMetaData& metadata);

bool is_unsigned(const parquet::ColumnDescriptor& column);

/// Parquet stores unsigned integers in signed ones.
template <class Value>
double number_of(Value value, [[maybe_unused]] bool unsigned_) {
  if constexpr (std::is_same_v<Value, int32_t> || std::is_same_v<Value, int64_t>)
    if (unsigned_) return static_cast<double>(static_cast<std::make_unsigned_t<Value>>(value));
  return static_cast<double>(value);
}

}  // namespace trainopt
