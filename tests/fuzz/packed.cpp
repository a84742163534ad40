// Packed files: a reader returns records that lie in the file, or an error. The trailer's and the index's checksums are
// made to fit, so that the numbers they cover are reached.
#include "data/formats/packed/packed_file.h"

#include "base/error.h"
#include "data/image/image.h"
#include "support.h"

#include <xxhash.h>

#include <cstring>
#include <string>

using namespace trainopt;

namespace {

volatile unsigned g_sum = 0;

void make_checksums_fit(std::string& bytes) {
  if (bytes.size() < sizeof(PackTrailer)) return;
  PackTrailer trailer;
  char* const place = bytes.data() + bytes.size() - sizeof(trailer);
  std::memcpy(&trailer, place, sizeof(trailer));
  const auto entries_at = static_cast<size_t>(trailer.entries_at);
  const size_t end = bytes.size() - sizeof(trailer);
  for (size_t at = entries_at; at <= end && end - at >= sizeof(PackEntry); at += sizeof(PackEntry)) {
    PackEntry entry;
    std::memcpy(&entry, bytes.data() + at, sizeof(entry));
    const auto offset = static_cast<uint64_t>(entry.offset);
    if (offset > end || entry.bytes > end - offset) break;
    entry.checksum = XXH3_64bits(bytes.data() + offset, entry.bytes);
    std::memcpy(bytes.data() + at, &entry, sizeof(entry));
  }
  if (entries_at <= end) trailer.index_checksum = XXH3_64bits(bytes.data() + entries_at, end - entries_at);
  trailer.checksum = checksum_of(trailer);
  std::memcpy(place, &trailer, sizeof(trailer));
}

void read_all(const PackedFile& file, size_t bytes) {
  std::vector<uint8_t> scratch;
  const int64_t classes = file.trailer().classes;
  FUZZ_CHECK(file.class_names().empty() || static_cast<int64_t>(file.class_names().size()) == classes);
  for (int64_t image = 0; image < file.size(); ++image) {
    FUZZ_CHECK(file.entry(image).label >= 0 && file.entry(image).label < classes);
    try {
      const auto record = file.record(image, scratch);
      FUZZ_CHECK(!record.empty() && record.size() < bytes);
      for (const uint8_t byte : record) g_sum = g_sum + byte;  // every byte can be read
    } catch (const BadSample&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  std::string bytes(as_text(data + 1, size - 1));
  if (data[0] % 2 == 1) make_checksums_fit(bytes);
  const MemoryFile memory(bytes);
  try {
    read_all(PackedFile(memory.path()), bytes.size());
  } catch (const UserError& error) {
    FUZZ_CHECK(error.code() == ExitCode::data);
  }
  return 0;
}
