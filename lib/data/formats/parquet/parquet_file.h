// A Parquet file of images with labels: which columns they are in, and reading them by row groups.
//
// Images are JPEG or PNG files in a column of bytes, by itself or in a struct {bytes, path} as Hugging Face writes it;
// or lists of pixel rows, with 0 to 255 in height × width × 3, 3 × height × width, or height × width.
#pragma once

#include "data/formats/parquet/config.h"
#include "data/formats/parquet/parquet_reader.h"
#include "data/image/image.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

/// One row group in memory.
struct RowGroup {
  ParquetBytes images;            ///< files, or pixels
  std::optional<ImageSize> size;  ///< size of images stored as pixels (8-bit RGB, row by row)
  std::vector<int32_t> labels;    ///< below kMostClasses; -1 where there is none

  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
  int64_t bytes() const;  ///< memory that it takes
  std::span<const uint8_t> image(int64_t row) const;
};

/// Safe to read from many threads.
class ParquetFile {
 public:
  /// Throws UserError(data) if it is no Parquet file, has no such columns, or a row group does not fit into
  /// `memory_limit` bytes, which is also checked when one is read.
  ParquetFile(std::shared_ptr<const DataFile> file, const ParquetConfig& config, int64_t memory_limit);

  const DataFile& file() const { return *file_; }
  const std::string& name() const { return file_->name(); }
  const ParquetLayout& layout() const { return reader_->layout(); }
  const std::vector<ParquetGroup>& groups() const { return reader_->layout().groups; }
  /// The names in Hugging Face's metadata, in label order; empty if there is none.
  const std::vector<std::string>& class_names() const { return class_names_; }
  bool has_pixels() const { return column(image_).kind == ParquetKind::integers; }
  const ParquetColumn& image_column() const { return column(image_); }
  const ParquetColumn& label_column() const { return column(label_); }
  const ParquetChunk& images(int64_t group) const { return chunk(group, image_); }
  const ParquetChunk& label_chunk(int64_t group) const { return chunk(group, label_); }

  /// Throws BadSample if the group is damaged, UserError(data) if the file cannot be read.
  RowGroup read(int64_t group) const;
  /// -1 where there is none. Throws as read().
  std::vector<int32_t> labels(int64_t group) const;
  /// The rows that the filter leaves, in order; null: all. Throws as read().
  std::optional<std::vector<int32_t>> kept_rows(int64_t group) const;

  int64_t reads_ahead() const { return file_->reads_ahead(); }
  /// Announces a read(), or labels().
  void expect(int64_t group) const;
  void expect_labels(int64_t group) const { announce(label_chunk(group)); }

 private:
  const ParquetColumn& column(int64_t index) const { return reader_->layout().columns[static_cast<size_t>(index)]; }
  const ParquetChunk& chunk(int64_t group, int64_t index) const {
    return groups()[static_cast<size_t>(group)].chunks[static_cast<size_t>(index)];
  }
  int64_t find_image(const std::optional<std::string>& wanted) const;
  int64_t find_label(const std::optional<std::string>& wanted) const;
  int64_t find_filter(const ParquetFilter& filter) const;
  std::optional<int64_t> find(const std::string& name) const;
  template <class Fits>
  int64_t only_column(const char* what, Fits fits) const;
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_memory(int64_t group) const;
  void check_groups() const;
  void announce(const ParquetChunk& chunk) const;
  template <class Read>
  auto guarded(int64_t group, int64_t column, Read read) const;

  std::shared_ptr<const DataFile> file_;
  std::unique_ptr<ParquetReader> reader_;
  int64_t memory_limit_;
  ParquetFilter filter_;
  int64_t image_ = 0, label_ = 0, filter_column_ = -1;
  std::vector<std::string> class_names_;
};

}  // namespace trainopt
