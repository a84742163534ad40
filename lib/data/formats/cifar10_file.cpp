#include "data/formats/cifar10_file.h"

#include "base/error.h"

namespace trainopt {

bool has_cifar10_name(const std::filesystem::path& file) {
  return file.extension() == ".bin" && file.filename().string().find("_batch") != std::string::npos;
}

void append_cifar10(std::string_view bytes, const std::string& path, CifarImages& images) {
  constexpr int64_t kRecordBytes = 1 + kCifarImageBytes;
  const auto size = static_cast<int64_t>(bytes.size()), records = size / kRecordBytes;
  if (size == 0 || records * kRecordBytes != size)
    throw UserError(
        fmt::format(
            "{} is not in CIFAR-10's binary format: its size must be a multiple of {} bytes, but it has {} bytes, {} "
            "records and {} bytes{}",
            path, kRecordBytes, size, records, size % kRecordBytes,
            size > 0 && size % (kRecordBytes + 1) == 0 ? "; it may be CIFAR-100's, which is not read" : ""),
        ExitCode::data);
  const size_t before = images.pixels.size();
  images.pixels.resize(before + static_cast<size_t>(records * kCifarImageBytes));
  uint8_t* out = images.pixels.data() + before;
  for (int64_t r = 0; r < records; ++r) {
    const auto* record = reinterpret_cast<const uint8_t*>(bytes.data()) + r * kRecordBytes;
    if (record[0] >= kCifarClasses)
      throw UserError(fmt::format("{} has a label outside 0 to 9: {} in record {}, at byte {}", path, record[0], r,
                                  r * kRecordBytes),
                      ExitCode::data);
    images.labels.push_back(record[0]);
    const uint8_t* red = record + 1;  // three planes
    for (int64_t i = 0; i < kCifarPixels; ++i, out += 3) {
      out[0] = red[i];
      out[1] = red[kCifarPixels + i];
      out[2] = red[2 * kCifarPixels + i];
    }
  }
}

}  // namespace trainopt
