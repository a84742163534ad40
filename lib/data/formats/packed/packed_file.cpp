#include "data/formats/packed/packed_file.h"

#include "base/error.h"
#include "base/units.h"
#include "data/formats/other_kind.h"
#include "data/formats/shards.h"
#include "data/image/image.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace trainopt {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr auto kTrailerBytes = static_cast<int64_t>(sizeof(PackTrailer)),
               kEntryBytes = static_cast<int64_t>(sizeof(PackEntry));
/// Above any real data set; keeps the sums below from overflowing.
constexpr int64_t kMostImages = int64_t{1} << 40, kMostNamesBytes = int64_t{1} << 30, kLargestSide = int64_t{1} << 14;

bool is_within(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

}  // namespace

uint64_t checksum_of(const PackTrailer& trailer) { return XXH3_64bits(&trailer, offsetof(PackTrailer, checksum)); }

PackedFile::PackedFile(std::unique_ptr<const DataFile> file) : file_(std::move(file)) {
  std::vector<uint8_t> scratch;
  if (file_->size() < kPackStart + kTrailerBytes) {
    refuse_other_kind(*file_, "a packed file");
    refuse(
        fmt::format("{}: too few for a packed file, which `trainopt data pack` makes", counted(file_->size(), "byte")));
  }
  const auto start = file_->read(0, std::ssize(kPackMagic), scratch);
  if (!std::equal(start.begin(), start.end(), kPackMagic.begin())) {
    refuse_other_kind(*file_, "a packed file");
    refuse("this is no packed file, which `trainopt data pack` makes");
  }
  check_trailer();
  check_index();
  verified_ = SampleMarks(size());
}

void PackedFile::refuse(const std::string& what) const {
  throw UserError(fmt::format("{}: {}", what, name()), ExitCode::data);
}

void PackedFile::check_trailer() {
  std::vector<uint8_t> scratch;
  std::memcpy(&trailer_, file_->read(file_->size() - kTrailerBytes, kTrailerBytes, scratch).data(), sizeof(trailer_));
  if (std::memcmp(trailer_.magic, PackTrailer().magic, sizeof(trailer_.magic)) != 0)
    refuse(fmt::format("the packed file was cut: it does not end with a trailer at byte {}",
                       file_->size() - kTrailerBytes));
  if (trailer_.version != PackTrailer().version)
    refuse(fmt::format("the packed file has version {}, and this program reads version {}", trailer_.version,
                       PackTrailer().version));
  const bool of_pixels = trailer_.kind == PackKind::pixels;
  const int64_t least = of_pixels ? 1 : 0, most = of_pixels ? kLargestSide : 0;
  const bool fits =
      trailer_.checksum == checksum_of(trailer_) && (of_pixels || trailer_.kind == PackKind::files) &&
      is_within(trailer_.images, 1, kMostImages) && is_within(trailer_.height, least, most) &&
      is_within(trailer_.width, least, most) && is_within(trailer_.classes, 1, kMostClasses) &&
      is_within(trailer_.names_bytes, 0, kMostNamesBytes) && trailer_.shard < trailer_.shards &&
      is_within(trailer_.entries_at, kPackStart, file_->size()) && trailer_.entries_at % 8 == 0 &&
      trailer_.entries_at + trailer_.images * kEntryBytes + trailer_.names_bytes + kTrailerBytes == file_->size();
  if (!fits)
    refuse(fmt::format("the packed file's trailer, at byte {}, is damaged; pack the images again",
                       file_->size() - kTrailerBytes));
}

void PackedFile::check_index() {
  const int64_t of_entries = trailer_.images * kEntryBytes;
  std::vector<uint8_t> scratch;
  const uint8_t* index = file_->read_once(trailer_.entries_at, of_entries + trailer_.names_bytes, scratch).data();
  if (XXH3_64bits(index, static_cast<size_t>(of_entries + trailer_.names_bytes)) != trailer_.index_checksum)
    refuse(fmt::format("the packed file's index, at byte {}, is damaged; pack the images again", trailer_.entries_at));
  entries_.resize(static_cast<size_t>(trailer_.images));
  std::memcpy(entries_.data(), index, static_cast<size_t>(of_entries));
  const int64_t of_image = trailer_.height * trailer_.width * 3;
  for (int64_t image = 0; image < size(); ++image) {
    const PackEntry& entry = this->entry(image);
    const bool has_size = trailer_.kind == PackKind::files ? entry.bytes > 0 : entry.bytes == of_image;
    if (!has_size || !is_within(entry.offset, kPackStart, trailer_.entries_at - entry.bytes) ||
        !is_within(entry.label, 0, trailer_.classes - 1))
      refuse(fmt::format("the packed file's image {} has {} bytes at byte {} and label {}, which cannot be", image,
                         entry.bytes, entry.offset, entry.label));
  }
  read_names({reinterpret_cast<const char*>(index + of_entries), static_cast<size_t>(trailer_.names_bytes)});
}

void PackedFile::read_names(std::string_view names) {
  while (!names.empty()) {
    const size_t end = names.find('\0');
    if (end == std::string_view::npos) break;
    names_.emplace_back(names.substr(0, end));
    names.remove_prefix(end + 1);
  }
  if (!names.empty() || (!names_.empty() && static_cast<int64_t>(names_.size()) != trailer_.classes))
    refuse(fmt::format("the packed file names {} classes but has {}", names_.size(), trailer_.classes));
}

std::span<const uint8_t> PackedFile::record(int64_t image, std::vector<uint8_t>& scratch) const {
  const PackEntry& entry = this->entry(image);
  const auto record = file_->read(entry.offset, entry.bytes, scratch);
  if (!verified_.has(image)) {
    if (XXH3_64bits(record.data(), record.size()) != entry.checksum)
      throw BadSample(fmt::format("its {} bytes at byte {} changed since they were packed", entry.bytes, entry.offset));
    if (file_->is_mapped()) verified_.add(image);
  }
  return record;
}

}  // namespace trainopt
