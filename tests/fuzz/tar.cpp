// Tar files: the index names images that lie in the file, or the file is refused. The headers' sums are made to fit, so
// that what stands in them is reached. The stored form of an index, too.
#include "data/formats/tar/tar_index.h"
#include "data/formats/tar/tar_members.h"

#include "base/error.h"
#include "support.h"

#include <cstdio>
#include <string>

using namespace trainopt;

namespace {

/// Every block is taken for a header. Where it is content, eight of its bytes change.
void make_sums_fit(std::string& tar) {
  constexpr size_t kSum = 148, kSumBytes = 8;
  for (size_t block = 0; block + kTarBlock <= tar.size(); block += kTarBlock) {
    if (tar[block] == 0) continue;
    tar.replace(block + kSum, kSumBytes, kSumBytes, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < kTarBlock; ++i) sum += static_cast<uint8_t>(tar[block + i]);
    char text[kSumBytes] = {};
    std::snprintf(text, sizeof(text), "%06o", sum);
    tar.replace(block + kSum, kSumBytes, text, kSumBytes);
  }
}

void check(const TarIndex& index, size_t bytes) {
  for (const TarSample& sample : index.samples) {
    FUZZ_CHECK(sample.offset >= 0 && sample.bytes >= 0 && sample.label >= 0);
    FUZZ_CHECK(static_cast<uint64_t>(sample.offset) + static_cast<uint64_t>(sample.bytes) <= bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  std::string bytes(as_text(data + 1, size - 1));
  constexpr int64_t kAnySize = 1 << 20;
  if (data[0] % 4 == 0) {
    if (const auto index = parse_index(bytes, kAnySize, "0")) check(*index, kAnySize);
    return 0;
  }
  if (data[0] % 4 == 1) make_sums_fit(bytes);
  try {
    const TarIndex index = tar_index(bytes, "input");
    check(index, bytes.size());
    const auto again = parse_index(index_text(index, kAnySize, "0"), kAnySize, "0");
    FUZZ_CHECK(again && again->samples.size() == index.samples.size());
  } catch (const UserError& error) {
    FUZZ_CHECK(error.code() == ExitCode::data);
  }
  return 0;
}
