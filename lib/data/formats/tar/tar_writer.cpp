#include "data/formats/tar/tar_writer.h"

#include "data/formats/tar/tar_members.h"
#include "data/image/decode.h"

#include <fmt/format.h>

namespace trainopt {

TarWriter::TarWriter(File& file, const std::string& comment) : ShardWriter(file) { append(tar_comment(comment)); }

void TarWriter::add(int64_t sample, std::span<const uint8_t> bytes, int64_t label) {
  const char* ending = image_kind(bytes) == ImageKind::jpeg ? "jpg" : "png";
  member(fmt::format("{:08}.{}", sample, ending), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  member(fmt::format("{:08}.cls", sample), std::to_string(label));
}

void TarWriter::member(const std::string& name, std::string_view content) {
  const auto bytes = static_cast<int64_t>(content.size());
  append(tar_header(name, bytes));
  append(content);
  append(tar_padding(bytes));
}

void TarWriter::finish(const std::vector<std::string>&) { append(std::string(2 * kTarBlock, '\0')); }

}  // namespace trainopt
