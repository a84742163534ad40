// ParquetReader by Arrow: the shared object's first function is at the end.
#include "data/parquet/arrow/data_file_source.h"
#include "data/parquet/parquet_reader.h"

#include <arrow/memory_pool.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>
#include <parquet/statistics.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace trainopt {
namespace {

/// Levels and values that are decoded at once.
constexpr int64_t kAtOnce = 1024;

ParquetKind kind_of(parquet::Type::type type) {
  switch (type) {
    case parquet::Type::BOOLEAN:
    case parquet::Type::INT32:
    case parquet::Type::INT64:
      return ParquetKind::integers;
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
          .type = parquet::TypeToString(column.physical_type()),
          .kind = kind_of(column.physical_type()),
          .levels = column.max_repetition_level()};
}

template <class Type>
void set_range(const parquet::Statistics& statistics, ParquetChunk& chunk) {
  const auto& typed = static_cast<const parquet::TypedStatistics<Type>&>(statistics);
  chunk.least = static_cast<double>(typed.min());
  chunk.most = static_cast<double>(typed.max());
}

void set_range(const parquet::ColumnChunkMetaData& metadata, ParquetChunk& chunk) {
  const auto statistics = metadata.is_stats_set() ? metadata.statistics() : nullptr;
  if (!statistics || !statistics->HasMinMax()) return;
  switch (metadata.type()) {
    case parquet::Type::BOOLEAN:
      return set_range<parquet::BooleanType>(*statistics, chunk);
    case parquet::Type::INT32:
      return set_range<parquet::Int32Type>(*statistics, chunk);
    case parquet::Type::INT64:
      return set_range<parquet::Int64Type>(*statistics, chunk);
    case parquet::Type::FLOAT:
      return set_range<parquet::FloatType>(*statistics, chunk);
    case parquet::Type::DOUBLE:
      return set_range<parquet::DoubleType>(*statistics, chunk);
    default:
      return;
  }
}

/// Where Arrow reads it from.
ParquetChunk chunk_of(const parquet::ColumnChunkMetaData& metadata) {
  ParquetChunk chunk;
  chunk.offset = metadata.data_page_offset();
  if (metadata.has_dictionary_page() && metadata.dictionary_page_offset() > 0)
    chunk.offset = std::min(chunk.offset, metadata.dictionary_page_offset());
  chunk.bytes = metadata.total_compressed_size();
  chunk.decoded_bytes = metadata.total_uncompressed_size();
  set_range(metadata, chunk);
  return chunk;
}

ParquetLayout layout_of(const parquet::FileMetaData& metadata) {
  ParquetLayout layout;
  for (int i = 0; i < metadata.num_columns(); ++i) layout.columns.push_back(column_of(*metadata.schema()->Column(i)));
  for (int i = 0; i < metadata.num_row_groups(); ++i) {
    const auto group = metadata.RowGroup(i);
    ParquetGroup& added = layout.groups.emplace_back(ParquetGroup{.rows = group->num_rows(), .chunks = {}});
    for (int column = 0; column < metadata.num_columns(); ++column)
      added.chunks.push_back(chunk_of(*group->ColumnChunk(column)));
  }
  if (const auto pairs = metadata.key_value_metadata()) {
    layout.huggingface = pairs->Get("huggingface").ValueOr("");
    layout.comment = pairs->Get(kParquetComment).ValueOr("");
  }
  return layout;
}

/// Calls `add(repetition level, value or null)` for each value of a column, also for missing ones.
template <class Type, class Add>
void each_value(parquet::ColumnReader& column, Add add) {
  using Value = typename Type::c_type;
  auto& reader = static_cast<parquet::TypedColumnReader<Type>&>(column);
  const int16_t present = column.descr()->max_definition_level();
  std::array<int16_t, kAtOnce> definition{}, repetition{};
  std::array<Value, kAtOnce> values;
  while (reader.HasNext()) {
    int64_t read = 0;
    const int64_t levels = reader.ReadBatch(kAtOnce, definition.data(), repetition.data(), values.data(), &read);
    if (levels == 0 && read == 0) throw std::runtime_error("a page has no values");
    const int64_t count = present == 0 ? read : levels;
    for (int64_t level = 0, value = 0; level < count; ++level) {
      const auto i = static_cast<size_t>(level);
      const bool is_there = present == 0 || definition[i] == present;
      if (is_there && value == read) throw std::runtime_error("a page has fewer values than its levels say");
      add(repetition[i], is_there ? &values[static_cast<size_t>(value++)] : nullptr);
    }
  }
}

/// Lengths of the lists of one level while values arrive.
class ListLengths {
 public:
  explicit ListLengths(size_t levels) : counts_(levels), lengths_(levels, -1) {}

  /// A value with this repetition level: lists of deeper levels end before it.
  void add(int64_t repetition) {
    const auto begins = static_cast<size_t>(repetition);
    for (size_t level = counts_.size(); level-- > begins;) end(level);
    for (size_t level = begins == 0 ? 0 : begins - 1; level < counts_.size(); ++level) ++counts_[level];
  }
  std::vector<int64_t> finish() {
    for (size_t level = 0; level < counts_.size(); ++level) end(level);
    for (auto& length : lengths_) length = std::max<int64_t>(length, 0);
    return lengths_;
  }

 private:
  void end(size_t level) {
    const int64_t count = std::exchange(counts_[level], 0);
    if (count == 0) return;
    lengths_[level] = lengths_[level] == -1 || lengths_[level] == count ? count : 0;
  }

  std::vector<int64_t> counts_, lengths_;
};

template <class Type>
ParquetNumbers numbers(parquet::ColumnReader& column) {
  ParquetNumbers to;
  ListLengths lengths(static_cast<size_t>(column.descr()->max_repetition_level()));
  each_value<Type>(column, [&](int16_t repetition, const auto* value) {
    if (repetition == 0) to.ends.push_back(static_cast<int64_t>(to.values.size()));
    lengths.add(repetition);
    to.values.push_back(value ? static_cast<double>(*value) : 0.0);
    to.missing.push_back(!value);
    to.ends.back() = static_cast<int64_t>(to.values.size());
  });
  to.list_lengths = lengths.finish();
  return to;
}

template <class Type>
ParquetBytes bytes(parquet::ColumnReader& column) {
  ParquetBytes to;
  [[maybe_unused]] const auto fixed = static_cast<size_t>(std::max(column.descr()->type_length(), 0));
  each_value<Type>(column, [&](int16_t, const auto* value) {
    if constexpr (std::is_same_v<Type, parquet::ByteArrayType>) {
      if (value) to.bytes.insert(to.bytes.end(), value->ptr, value->ptr + value->len);
    } else {
      if (value) to.bytes.insert(to.bytes.end(), value->ptr, value->ptr + fixed);
    }
    to.ends.push_back(static_cast<int64_t>(to.bytes.size()));
  });
  return to;
}

/// What `read` returns; throws what the file threw, or what Arrow said.
template <class Read>
auto guarded(Read read) {
  DataFileSource::forget();
  try {
    return read();
  } catch (const std::exception& error) {
    DataFileSource::rethrow();
    throw std::runtime_error(error.what());  // Arrow's types are unknown to the program
  }
}

class ArrowReader : public ParquetReader {
 public:
  ArrowReader(std::shared_ptr<const DataFile> file, int64_t memory_limit)
      : proxy_(arrow::system_memory_pool()), pool_(&proxy_, memory_limit) {
    parquet::ReaderProperties properties(&pool_);
    properties.set_page_checksum_verification(true);
    reader_ = parquet::ParquetFileReader::Open(std::make_shared<DataFileSource>(std::move(file)), properties);
    layout_ = layout_of(*reader_->metadata());
  }

  const ParquetLayout& layout() const override { return layout_; }

  ParquetBytes read_bytes(int64_t group, int64_t column) const override {
    return guarded([&] {
      const auto reader = column_reader(group, column);
      ParquetBytes read = reader->type() == parquet::Type::BYTE_ARRAY ? bytes<parquet::ByteArrayType>(*reader)
                                                                      : bytes<parquet::FLBAType>(*reader);
      require_rows(group, column, read.ends.size());
      return read;
    });
  }

  ParquetNumbers read_numbers(int64_t group, int64_t column) const override {
    return guarded([&] {
      ParquetNumbers read = typed_numbers(*column_reader(group, column));
      require_rows(group, column, read.ends.size());
      return read;
    });
  }

 private:
  std::shared_ptr<parquet::ColumnReader> column_reader(int64_t group, int64_t column) const {
    return reader_->RowGroup(static_cast<int>(group))->Column(static_cast<int>(column));
  }

  static ParquetNumbers typed_numbers(parquet::ColumnReader& reader) {
    switch (reader.type()) {
      case parquet::Type::BOOLEAN:
        return numbers<parquet::BooleanType>(reader);
      case parquet::Type::INT32:
        return numbers<parquet::Int32Type>(reader);
      case parquet::Type::INT64:
        return numbers<parquet::Int64Type>(reader);
      case parquet::Type::FLOAT:
        return numbers<parquet::FloatType>(reader);
      case parquet::Type::DOUBLE:
        return numbers<parquet::DoubleType>(reader);
      default:
        throw std::runtime_error("the column has no numbers");
    }
  }

  void require_rows(int64_t group, int64_t column, size_t found) const {
    const int64_t rows = layout_.groups[static_cast<size_t>(group)].rows;
    if (static_cast<int64_t>(found) != rows)
      throw std::runtime_error("column " + layout_.columns[static_cast<size_t>(column)].name + " has " +
                               std::to_string(found) + " values for " + std::to_string(rows) + " rows");
  }

  arrow::ProxyMemoryPool proxy_;
  arrow::CappedMemoryPool pool_;
  std::unique_ptr<parquet::ParquetFileReader> reader_;
  ParquetLayout layout_;
};

}  // namespace
}  // namespace trainopt

extern "C" __attribute__((visibility("default"))) std::unique_ptr<trainopt::ParquetReader> trainopt_open_parquet(
    std::shared_ptr<const trainopt::DataFile> file, int64_t memory_limit) {
  return trainopt::guarded([&]() -> std::unique_ptr<trainopt::ParquetReader> {
    return std::make_unique<trainopt::ArrowReader>(std::move(file), memory_limit);
  });
}
