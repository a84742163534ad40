#include "data/formats/parquet/parquet_file.h"

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "data/formats/other_kind.h"
#include "data/formats/parquet/listed_pixels.h"
#include "data/formats/parquet/parquet_library.h"
#include "data/formats/shards.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>

namespace trainopt {
namespace {

constexpr double kLargestExact = int64_t{1} << 53;  // a double holds every integer up to this
constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();

std::string printable(std::string text) {
  for (char& c : text)
    if ((c >= 0 && c < ' ') || c == 0x7f) c = ' ';
  return text;
}

/// Names of the label column's classes, as Hugging Face's datasets writes them; empty if the metadata has none.
std::vector<std::string> names_in(const std::string& metadata, const std::string& label) {
  std::vector<std::string> names;
  constexpr int kDepth = 8;
  const auto is_shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kDepth; };
  const Json parsed = Json::parse(metadata, is_shallow, /*allow_exceptions=*/false);
  const auto place = Json::json_pointer("/info/features") / label / "names";
  if (parsed.is_discarded() || !parsed.contains(place)) return names;
  const Json& found = parsed[place];
  const bool are_texts = std::all_of(found.begin(), found.end(), [](const Json& name) { return name.is_string(); });
  if (found.is_array() && are_texts) found.get_to(names);
  for (auto& name : names) name = printable(name);
  return names;
}

std::unique_ptr<ParquetReader> open_reader(const std::shared_ptr<const DataFile>& file, int64_t memory_limit) try {
  return open_parquet_reader(file, memory_limit);
} catch (const UserError&) {
  refuse_other_kind(*file, "a Parquet file");
  throw;
}

}  // namespace

int64_t RowGroup::bytes() const {
  return static_cast<int64_t>(images.bytes.capacity() + images.ends.capacity() * sizeof(int64_t) +
                              labels.capacity() * sizeof(int32_t));
}

std::span<const uint8_t> RowGroup::image(int64_t row) const {
  const int64_t begin = row == 0 ? 0 : images.ends[static_cast<size_t>(row - 1)];
  return std::span(images.bytes)
      .subspan(static_cast<size_t>(begin), static_cast<size_t>(images.ends[static_cast<size_t>(row)] - begin));
}

ParquetFile::ParquetFile(std::shared_ptr<const DataFile> file, const ParquetConfig& config, int64_t memory_limit)
    : file_(std::move(file)),
      reader_(open_reader(file_, memory_limit)),
      memory_limit_(memory_limit),
      filter_(config.filter) {
  image_ = find_image(config.image);
  label_ = find_label(config.label);
  if (filter_.column) filter_column_ = find_filter(filter_);
  class_names_ = names_in(reader_->layout().huggingface, column(label_).name);
  check_groups();
}

void ParquetFile::refuse(const std::string& what) const {
  std::vector<std::string> columns;
  for (const auto& each : reader_->layout().columns) columns.push_back(fmt::format("{} ({})", each.name, each.type));
  throw UserError(printable(fmt::format("{}; the columns of {} are: {}", what, name(), fmt::join(columns, ", "))),
                  ExitCode::data);
}

/// The column of this name, or the one that its struct {bytes, path} or its lists hold.
std::optional<int64_t> ParquetFile::find(const std::string& name) const {
  const auto& columns = reader_->layout().columns;
  std::optional<int64_t> found;
  for (size_t i = 0; i < columns.size(); ++i) {
    const bool is_of_lists = columns[i].name.starts_with(name + ".list.");
    if (columns[i].name != name && columns[i].name != name + ".bytes" && !is_of_lists) continue;
    if (found && is_of_lists) refuse(fmt::format("the lists of the column {} hold structs, not numbers", name));
    if (!found) found = static_cast<int64_t>(i);
  }
  return found;
}

/// The only column that fits. `what`: "image".
template <class Fits>
int64_t ParquetFile::only_column(const char* what, Fits fits) const {
  const auto& columns = reader_->layout().columns;
  const std::string option = fmt::format("data.parquet.{0}, or --{0} of data show and data pack", what);
  std::optional<int64_t> found;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!fits(columns[i])) continue;
    if (found) refuse(fmt::format("several columns could be the {0}s; name one with {1}", what, option));
    found = static_cast<int64_t>(i);
  }
  if (!found) refuse(fmt::format("there is no column of {0}s; name one with {1}", what, option));
  return *found;
}

int64_t ParquetFile::find_image(const std::optional<std::string>& wanted) const {
  const auto holds_images = [](const ParquetColumn& each) {
    return (each.kind == ParquetKind::bytes && each.levels == 0 && !each.name.ends_with(".path")) ||
           (each.kind == ParquetKind::integers && (each.levels == 2 || each.levels == 3));
  };
  std::optional<int64_t> found;
  if (wanted) {
    found = find(*wanted);
    if (!found) refuse(fmt::format("there is no column {} (data.parquet.image)", *wanted));
  }
  for (const char* name : {"image", "img"})
    if (!found) found = find(name);
  if (!found) found = only_column("image", holds_images);
  if (!holds_images(column(*found)))
    refuse(fmt::format("the column {} holds no images: neither files nor lists of pixel rows", column(*found).name));
  return *found;
}

int64_t ParquetFile::find_label(const std::optional<std::string>& wanted) const {
  const auto is_label = [](const ParquetColumn& each) {
    return each.kind == ParquetKind::integers && each.levels == 0;
  };
  std::optional<int64_t> found = find(wanted.value_or("label"));
  if (!found && wanted) refuse(fmt::format("there is no column {} (data.parquet.label)", *wanted));
  if (!found) found = only_column("label", is_label);
  if (column(*found).levels > 0)
    refuse(fmt::format("the labels in the column {} are lists, and a sample can have one class only",
                       column(*found).name));
  if (!is_label(column(*found)))
    refuse(fmt::format("the labels in the column {} must be integers", column(*found).name));
  return *found;
}

int64_t ParquetFile::find_filter(const ParquetFilter& filter) const {
  const auto found = find(*filter.column);
  if (!found) refuse(fmt::format("there is no column {} (data.parquet.filter)", *filter.column));
  const ParquetColumn& each = column(*found);
  if ((each.kind != ParquetKind::integers && each.kind != ParquetKind::reals) || each.levels > 0)
    refuse(fmt::format("the column {} (data.parquet.filter) holds no numbers", *filter.column));
  return *found;
}

void ParquetFile::check_groups() const {
  int64_t all_rows = 0;
  for (const auto& group : groups()) all_rows += group.rows;
  if (all_rows != layout().rows)
    throw UserError(fmt::format("the file says that it has {}, and its row groups have {}: {}",
                                counted(layout().rows, "row"), all_rows, name()),
                    ExitCode::data);
  for (int64_t group = 0; group < static_cast<int64_t>(groups().size()); ++group) {
    const int64_t rows = groups()[static_cast<size_t>(group)].rows;
    if (rows < 0 || rows > kMostRows)
      throw UserError(fmt::format("row group {} says that it has {} rows: {}", group, rows, name()), ExitCode::data);
    for (const int64_t index : {image_, label_, filter_column_}) {
      if (index < 0) continue;
      const ParquetChunk& each = chunk(group, index);
      if (each.offset < 0 || each.bytes < 0 || each.offset > file_->size() - each.bytes || each.decoded_bytes < 0)
        throw UserError(fmt::format("row group {} lies outside the file: {}", group, name()), ExitCode::data);
    }
    if (images(group).decoded_bytes > memory_limit_) refuse_memory(group);
  }
}

void ParquetFile::refuse_memory(int64_t group) const {
  throw UserError(fmt::format("row group {} takes more memory than data.memory_limit allows; raise it, or write the "
                              "file with smaller row groups: {}, the limit is {}: {}",
                              group, counted(groups()[static_cast<size_t>(group)].rows, "row"),
                              human_bytes(static_cast<double>(memory_limit_)), name()),
                  ExitCode::data);
}

/// What `read` returns; throws UserError for what the machine lacks, BadSample for what is wrong with the file.
template <class Read>
auto ParquetFile::guarded(int64_t group, int64_t index, Read read) const {
  try {
    return read();
  } catch (const UserError&) {
    throw;
  } catch (const BrokenInvariant&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::length_error&) {
    refuse_memory(group);
  } catch (const std::exception& error) {
    throw BadSample(fmt::format("the column {} of row group {} cannot be read: {}", column(index).name, group,
                                readable(error.what())));
  }
}

RowGroup ParquetFile::read(int64_t group) const {
  RowGroup read;
  guarded(group, image_, [&] {
    if (!has_pixels()) {
      read.images = reader_->read_bytes(group, image_);
      return;
    }
    ListedPixels pixels = pixels_of(reader_->read_numbers(group, image_));
    read.size = pixels.size;
    read.images = std::move(pixels.rgb);
  });
  read.labels = labels(group);
  return read;
}

std::vector<int32_t> ParquetFile::labels(int64_t group) const {
  return guarded(group, label_, [&] {
    const ParquetNumbers numbers = reader_->read_numbers(group, label_);
    std::vector<int32_t> labels;
    for (size_t row = 0; row < numbers.values.size(); ++row) {
      const double value = numbers.values[row];
      const bool is_label = !numbers.missing[row] && value >= 0 && value < kMostClasses;
      labels.push_back(is_label ? static_cast<int32_t>(value) : -1);
    }
    return labels;
  });
}

std::optional<std::vector<int32_t>> ParquetFile::kept_rows(int64_t group) const {
  if (filter_column_ < 0) return {};
  const double min = filter_.min.value_or(-std::numeric_limits<double>::infinity()),
               max = filter_.max.value_or(std::numeric_limits<double>::infinity());
  const ParquetChunk& range = chunk(group, filter_column_);
  if (range.least && (*range.most < min || *range.least > max)) return std::vector<int32_t>();
  return guarded(group, filter_column_, [&] {
    const ParquetNumbers numbers = reader_->read_numbers(group, filter_column_);
    std::vector<int32_t> kept;
    const bool is_exact = std::all_of(numbers.values.begin(), numbers.values.end(),
                                      [](double value) { return std::abs(value) <= kLargestExact; });
    if (!is_exact && column(filter_column_).kind == ParquetKind::integers)
      throw UserError(fmt::format("the column {} (data.parquet.filter) has integers beyond 2^53, which cannot be "
                                  "compared exactly: {}",
                                  *filter_.column, name()),
                      ExitCode::data);
    for (size_t row = 0; row < numbers.values.size(); ++row)
      if (!numbers.missing[row] && numbers.values[row] >= min && numbers.values[row] <= max)
        kept.push_back(static_cast<int32_t>(row));
    return std::optional(std::move(kept));
  });
}

void ParquetFile::announce(const ParquetChunk& each) const {
  for (int64_t begin = 0; begin < each.bytes; begin += kParquetPiece)
    file_->expect(each.offset + begin, std::min(kParquetPiece, each.bytes - begin));
}

void ParquetFile::expect(int64_t group) const {
  announce(images(group));
  expect_labels(group);
}

}  // namespace trainopt
