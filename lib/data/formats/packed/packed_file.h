// A packed file: many images in one file, which is read through memory mapping. All integers are little-endian.
//
//   0            "TRNOPACK"
//   64           the records, one after the other: pixels (8-bit RGB, row by row, all images of one size), or JPEG and
//                PNG files as they were
//   entries_at   one PackEntry for each record; a multiple of 8
//   then         the names of the classes in label order, each ended by a zero byte
//   then         a PackTrailer, with which the file ends
//
// So a file is written front to back, and one that was cut has no trailer. Every byte that is used is checked: the
// index when the file is opened, a record when it is first read.
#pragma once

#include "data/sample_marks.h"
#include "storage/data_file.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

enum class PackKind : uint32_t { pixels = 0, files = 1 };

struct PackEntry {
  int64_t offset = 0;
  uint32_t bytes = 0;
  int32_t label = 0;
  uint64_t checksum = 0;  ///< XXH3 of the record
  bool operator==(const PackEntry&) const = default;
};

struct PackTrailer {
  char magic[8] = {'T', 'R', 'N', 'O', 'P', 'E', 'N', 'D'};
  uint32_t version = 1;
  PackKind kind = PackKind::pixels;
  int64_t images = 0;
  int64_t height = 0, width = 0;  ///< every image's size; 0 for files
  int64_t classes = 0;
  int64_t entries_at = 0, names_bytes = 0;
  uint64_t source = 0;             ///< stands for what was packed, and how
  uint32_t shard = 0, shards = 1;  ///< this file is one of `shards`, which together hold the data set
  uint64_t index_checksum = 0;     ///< XXH3 of entries and names
  uint64_t checksum = 0;           ///< XXH3 of the trailer's bytes before this
};

inline constexpr std::string_view kPackMagic = "TRNOPACK";
inline constexpr int64_t kPackStart = 64;  ///< where the records begin
static_assert(sizeof(PackEntry) == 24 && sizeof(PackTrailer) == 96);

uint64_t checksum_of(const PackTrailer& trailer);

/// Safe to read from many threads.
class PackedFile {
 public:
  /// Throws UserError(data), with what is wrong and where, for a file that cannot be read, is of another kind or
  /// version, was cut or changed, or whose index does not fit it.
  explicit PackedFile(std::unique_ptr<const DataFile> file);
  explicit PackedFile(const std::filesystem::path& path) : PackedFile(open_local_file(path)) {}

  const DataFile& file() const { return *file_; }
  const std::string& name() const { return file_->name(); }
  int64_t size() const { return trailer_.images; }
  const PackTrailer& trailer() const { return trailer_; }
  const std::vector<std::string>& class_names() const { return names_; }  ///< in label order; empty: they have none
  const PackEntry& entry(int64_t image) const { return entries_[static_cast<size_t>(image)]; }
  /// The bytes of a record, as DataFile::read(). Verifies them: of a mapped file the first time only. Throws BadSample
  /// with the offset if they changed since they were written.
  std::span<const uint8_t> record(int64_t image, std::vector<uint8_t>& scratch) const;
  int64_t reads_ahead() const { return file_->reads_ahead(); }
  /// Announces a record().
  void expect(int64_t image) const { file_->expect(entry(image).offset, entry(image).bytes); }

 private:
  void check_trailer();
  void check_index();
  void read_names(std::string_view names);
  [[noreturn]] void refuse(const std::string& what) const;

  std::unique_ptr<const DataFile> file_;
  PackTrailer trailer_;
  std::vector<PackEntry> entries_;  ///< copied: a file that shrinks while it is mapped loses its last pages, the index
  std::vector<std::string> names_;
  mutable SampleMarks verified_;  ///< images whose checksum was compared
};

}  // namespace trainopt
