// ParquetReader by Arrow: the shared object's first function is at the end.
#include "data/formats/parquet/arrow/arrow_layout.h"
#include "data/formats/parquet/arrow/data_file_source.h"
#include "data/formats/parquet/parquet_reader.h"

#include <arrow/memory_pool.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <utility>

namespace trainopt {
namespace {

/// Levels and values that are decoded at once.
constexpr int64_t kAtOnce = 1024;

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

/// What decoding may produce: dictionaries and run lengths make much of few bytes.
struct Bounds {
  size_t rows;
  size_t bytes;
  size_t likely_bytes;  ///< what the file says

  void check(size_t rows_so_far, size_t bytes_so_far) const {
    if (rows_so_far > rows) throw std::runtime_error("there are more values than rows");
    if (bytes_so_far > bytes) throw std::length_error("the limit of memory");
  }
};

template <class Type>
ParquetNumbers numbers(parquet::ColumnReader& column, const Bounds& bounds) {
  ParquetNumbers to;
  const bool unsigned_ = is_unsigned(*column.descr());
  ListLengths lengths(static_cast<size_t>(column.descr()->max_repetition_level()));
  each_value<Type>(column, [&](int16_t repetition, const auto* value) {
    if (repetition == 0) to.ends.push_back(static_cast<int64_t>(to.values.size()));
    if (to.ends.empty()) throw std::runtime_error("a row group begins within a row");
    bounds.check(to.ends.size(), to.values.size() * sizeof(double));
    lengths.add(repetition);
    to.values.push_back(value ? number_of(*value, unsigned_) : 0.0);
    to.missing.push_back(!value);
    to.ends.back() = static_cast<int64_t>(to.values.size());
  });
  to.list_lengths = lengths.finish();
  return to;
}

template <class Type>
ParquetBytes bytes(parquet::ColumnReader& column, const Bounds& bounds) {
  ParquetBytes to;
  to.bytes.reserve(std::min(bounds.likely_bytes, bounds.bytes));
  [[maybe_unused]] const auto fixed = static_cast<size_t>(std::max(column.descr()->type_length(), 0));
  each_value<Type>(column, [&](int16_t, const auto* value) {
    size_t length = fixed;
    if constexpr (std::is_same_v<Type, parquet::ByteArrayType>) length = value ? value->len : 0;
    bounds.check(to.ends.size() + 1, to.bytes.size() + length);
    if (value) to.bytes.insert(to.bytes.end(), value->ptr, value->ptr + length);
    to.ends.push_back(static_cast<int64_t>(to.bytes.size()));
  });
  return to;
}

/// What `read` returns; throws what the file threw, std::length_error beyond the limit of memory, or what Arrow said.
template <class Read>
auto guarded(Read read) {
  DataFileSource::forget();
  try {
    return read();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::length_error&) {
    throw;
  } catch (const parquet::ParquetStatusException& error) {
    DataFileSource::rethrow();
    if (error.status().IsOutOfMemory()) throw std::length_error(error.what());
    throw std::runtime_error(error.what());
  } catch (const std::exception& error) {
    DataFileSource::rethrow();
    throw std::runtime_error(error.what());  // Arrow's types are unknown to the program
  }
}

/// One reading of a file, with memory of its own, so that its limit does not depend on what other threads read.
class Reading {
 public:
  Reading(const std::shared_ptr<DataFileSource>& source, int64_t memory_limit,
          const std::shared_ptr<parquet::FileMetaData>& metadata)
      : proxy_(arrow::system_memory_pool()), pool_(&proxy_, memory_limit) {
    parquet::ReaderProperties properties(&pool_);
    properties.set_page_checksum_verification(true);
    reader_ = parquet::ParquetFileReader::Open(source, properties, metadata);
  }
  std::shared_ptr<parquet::ColumnReader> column(int64_t group, int64_t column) const {
    return reader_->RowGroup(static_cast<int>(group))->Column(static_cast<int>(column));
  }

 private:
  arrow::ProxyMemoryPool proxy_;
  arrow::CappedMemoryPool pool_;
  std::unique_ptr<parquet::ParquetFileReader> reader_;
};

class ArrowReader : public ParquetReader {
 public:
  ArrowReader(std::shared_ptr<const DataFile> file, int64_t memory_limit)
      : source_(std::make_shared<DataFileSource>(std::move(file))), memory_limit_(memory_limit) {
    // Without a limit of memory: the footer cannot be larger than the file.
    metadata_ = parquet::ParquetFileReader::Open(source_)->metadata();
    layout_ = layout_of(*metadata_);
  }

  const ParquetLayout& layout() const override { return layout_; }

  ParquetBytes read_bytes(int64_t group, int64_t column) const override {
    return guarded([&] {
      const Reading reading(source_, memory_limit_, metadata_);
      const auto reader = reading.column(group, column);
      const Bounds bounds = bounds_of(group, column);
      ParquetBytes read = reader->type() == parquet::Type::BYTE_ARRAY ? bytes<parquet::ByteArrayType>(*reader, bounds)
                                                                      : bytes<parquet::FLBAType>(*reader, bounds);
      require_rows(group, column, read.ends.size());
      return read;
    });
  }

  ParquetNumbers read_numbers(int64_t group, int64_t column) const override {
    return guarded([&] {
      const Reading reading(source_, memory_limit_, metadata_);
      ParquetNumbers read = typed_numbers(*reading.column(group, column), bounds_of(group, column));
      require_rows(group, column, read.ends.size());
      return read;
    });
  }

 private:
  Bounds bounds_of(int64_t group, int64_t column) const {
    const ParquetGroup& of_group = layout_.groups[static_cast<size_t>(group)];
    constexpr int64_t kMostGrowth = 16;  // a damaged file may claim any
    const ParquetChunk& chunk = of_group.chunks[static_cast<size_t>(column)];
    return {
        .rows = static_cast<size_t>(of_group.rows),
        .bytes = static_cast<size_t>(memory_limit_),
        .likely_bytes = static_cast<size_t>(std::clamp<int64_t>(chunk.decoded_bytes, 0, kMostGrowth * chunk.bytes))};
  }

  static ParquetNumbers typed_numbers(parquet::ColumnReader& reader, const Bounds& bounds) {
    switch (reader.type()) {
      case parquet::Type::BOOLEAN:
        return numbers<parquet::BooleanType>(reader, bounds);
      case parquet::Type::INT32:
        return numbers<parquet::Int32Type>(reader, bounds);
      case parquet::Type::INT64:
        return numbers<parquet::Int64Type>(reader, bounds);
      case parquet::Type::FLOAT:
        return numbers<parquet::FloatType>(reader, bounds);
      case parquet::Type::DOUBLE:
        return numbers<parquet::DoubleType>(reader, bounds);
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

  std::shared_ptr<DataFileSource> source_;
  int64_t memory_limit_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  ParquetLayout layout_;
};

}  // namespace
}  // namespace trainopt

extern "C" __attribute__((visibility("default"))) std::unique_ptr<trainopt::ParquetReader> trainopt_open_parquet_1(
    std::shared_ptr<const trainopt::DataFile> file, int64_t memory_limit) {
  return trainopt::guarded([&]() -> std::unique_ptr<trainopt::ParquetReader> {
    return std::make_unique<trainopt::ArrowReader>(std::move(file), memory_limit);
  });
}
