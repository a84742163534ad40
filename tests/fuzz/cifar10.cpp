// CIFAR-10 files: the reader returns complete records or an error, and the pixels are a permutation of the bytes.
#include "data/formats/cifar10_file.h"

#include "base/error.h"
#include "support.h"

using namespace trainopt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  CifarImages images;
  try {
    append_cifar10(as_text(data, size), "input", images);
    FUZZ_CHECK(!images.labels.empty() && images.labels.size() * (1 + kCifarImageBytes) == size);
    FUZZ_CHECK(images.pixels.size() == images.labels.size() * kCifarImageBytes);
    const size_t last = size - 1 - kCifarImageBytes;
    FUZZ_CHECK(images.labels.back() == data[last] &&
               images.pixels[images.pixels.size() - 2] == data[last + 2 * kCifarPixels]);
  } catch (const UserError& error) {
    FUZZ_CHECK(error.code() == ExitCode::data);
  }
  return 0;
}
