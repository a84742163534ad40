#include "data/formats/packed/packed_writer.h"

#include "base/error.h"

#include <xxhash.h>

#include <limits>

namespace trainopt {

PackedWriter::PackedWriter(File& file, const PackTrailer& about) : ShardWriter(file), trailer_(about) {
  std::string start(kPackMagic);
  start.resize(static_cast<size_t>(kPackStart));
  append(start);
}

void PackedWriter::add(int64_t, std::span<const uint8_t> bytes, int64_t label) {
  TRAINOPT_CHECK(!bytes.empty() && bytes.size() <= std::numeric_limits<uint32_t>::max());
  TRAINOPT_CHECK(label >= 0 && label < trailer_.classes);
  TRAINOPT_CHECK(trailer_.kind == PackKind::files ||
                 static_cast<int64_t>(bytes.size()) == trailer_.height * trailer_.width * 3);
  entries_.push_back({.offset = written(),
                      .bytes = static_cast<uint32_t>(bytes.size()),
                      .label = static_cast<int32_t>(label),
                      .checksum = XXH3_64bits(bytes.data(), bytes.size())});
  append(bytes.data(), bytes.size());
}

void PackedWriter::finish(const std::vector<std::string>& class_names) {
  append(std::string(static_cast<size_t>(-written() & 7), '\0'));
  trailer_.images = static_cast<int64_t>(entries_.size());
  trailer_.entries_at = written();
  std::string index(reinterpret_cast<const char*>(entries_.data()), entries_.size() * sizeof(PackEntry));
  const size_t of_entries = index.size();
  for (const auto& name : class_names) index += name + '\0';
  trailer_.names_bytes = static_cast<int64_t>(index.size() - of_entries);
  trailer_.index_checksum = XXH3_64bits(index.data(), index.size());
  trailer_.checksum = checksum_of(trailer_);
  append(index);
  append(&trailer_, sizeof(trailer_));
}

}  // namespace trainopt
