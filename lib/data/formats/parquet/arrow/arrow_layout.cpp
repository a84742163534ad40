#include "data/formats/parquet/arrow/arrow_layout.h"

#include <arrow/util/key_value_metadata.h>
#include <parquet/statistics.h>
#include <parquet/types.h>

#include <algorithm>

namespace trainopt {
namespace {

/// Dates, times and decimals are stored as integers, and are none.
bool has_own_meaning(const parquet::ColumnDescriptor& column) {
  const auto& logical = column.logical_type();
  return logical && !(logical->is_none() || logical->is_int());
}

ParquetKind kind_of(const parquet::ColumnDescriptor& column) {
  switch (column.physical_type()) {
    case parquet::Type::BOOLEAN:
      return ParquetKind::integers;
    case parquet::Type::INT32:
    case parquet::Type::INT64:
      return has_own_meaning(column) ? ParquetKind::other : ParquetKind::integers;
    case parquet::Type::FLOAT:
    case parquet::Type::DOUBLE:
      return ParquetKind::reals;
    case parquet::Type::BYTE_ARRAY:
    case parquet::Type::FIXED_LEN_BYTE_ARRAY:
      return ParquetKind::bytes;
    default:
      return ParquetKind::other;
  }
}

ParquetColumn column_of(const parquet::ColumnDescriptor& column) {
  return {.name = column.path()->ToDotString(),
          .type = has_own_meaning(column) ? column.logical_type()->ToString()
                                          : parquet::TypeToString(column.physical_type()),
          .kind = kind_of(column),
          .levels = column.max_repetition_level()};
}

template <class Type>
void set_range(const parquet::Statistics& statistics, bool unsigned_, ParquetChunk& chunk) {
  const auto& typed = static_cast<const parquet::TypedStatistics<Type>&>(statistics);
  chunk.least = number_of(typed.min(), unsigned_);
  chunk.most = number_of(typed.max(), unsigned_);
}

void set_range(const parquet::ColumnChunkMetaData& metadata, bool unsigned_, ParquetChunk& chunk) {
  const auto statistics = metadata.is_stats_set() ? metadata.statistics() : nullptr;
  if (!statistics || !statistics->HasMinMax()) return;
  switch (metadata.type()) {
    case parquet::Type::BOOLEAN:
      return set_range<parquet::BooleanType>(*statistics, unsigned_, chunk);
    case parquet::Type::INT32:
      return set_range<parquet::Int32Type>(*statistics, unsigned_, chunk);
    case parquet::Type::INT64:
      return set_range<parquet::Int64Type>(*statistics, unsigned_, chunk);
    case parquet::Type::FLOAT:
      return set_range<parquet::FloatType>(*statistics, unsigned_, chunk);
    case parquet::Type::DOUBLE:
      return set_range<parquet::DoubleType>(*statistics, unsigned_, chunk);
    default:
      return;
  }
}

/// The bytes of the file that Arrow reads for this column chunk, and the range of its values.
ParquetChunk chunk_of(const parquet::ColumnChunkMetaData& metadata, bool unsigned_) {
  ParquetChunk chunk;
  chunk.offset = metadata.data_page_offset();
  if (metadata.has_dictionary_page() && metadata.dictionary_page_offset() > 0)
    chunk.offset = std::min(chunk.offset, metadata.dictionary_page_offset());
  chunk.bytes = metadata.total_compressed_size();
  chunk.decoded_bytes = metadata.total_uncompressed_size();
  set_range(metadata, unsigned_, chunk);
  return chunk;
}

}  // namespace

bool is_unsigned(const parquet::ColumnDescriptor& column) {
  const auto& logical = column.logical_type();
  return logical && logical->is_int() && !static_cast<const parquet::IntLogicalType&>(*logical).is_signed();
}

ParquetLayout layout_of(const parquet::FileMetaData& metadata) {
  ParquetLayout layout;
  layout.rows = metadata.num_rows();
  for (int i = 0; i < metadata.num_columns(); ++i) layout.columns.push_back(column_of(*metadata.schema()->Column(i)));
  for (int i = 0; i < metadata.num_row_groups(); ++i) {
    const auto group = metadata.RowGroup(i);
    ParquetGroup& added = layout.groups.emplace_back(ParquetGroup{.rows = group->num_rows(), .chunks = {}});
    for (int column = 0; column < metadata.num_columns(); ++column)
      added.chunks.push_back(chunk_of(*group->ColumnChunk(column), is_unsigned(*metadata.schema()->Column(column))));
  }
  if (const auto& pairs = metadata.key_value_metadata()) {
    layout.huggingface = pairs->Get("huggingface").ValueOr("");
    layout.comment = pairs->Get(kParquetComment).ValueOr("");
  }
  return layout;
}

}  // namespace trainopt
