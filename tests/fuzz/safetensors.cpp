// Safetensors: the tensors of an accepted file fill it to the end, with the bytes that it has there.
#include "base/files/safetensors.h"
#include "support.h"

#include <numeric>

using namespace trainopt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile input(as_text(data, size));
  try {
    const SafetensorsFile file(input.path());
    std::vector<std::vector<char>> bytes;
    for (const auto& entry : file.entries()) bytes.emplace_back(entry.bytes);
    const Checksum checksum = file.read([&](size_t entry) { return bytes[entry].data(); });
    FUZZ_CHECK(checksum.bytes() == static_cast<int64_t>(size));
    size_t end = size - std::accumulate(bytes.begin(), bytes.end(), size_t{0},
                                        [](size_t sum, const auto& tensor) { return sum + tensor.size(); });
    for (const auto& tensor : bytes) {
      FUZZ_CHECK(as_text(data, size).substr(end, tensor.size()) == std::string_view(tensor.data(), tensor.size()));
      end += tensor.size();
    }
  } catch (const UserError& error) {
    FUZZ_CHECK(error.code() == ExitCode::checkpoint && std::string_view(error.what()).size() < 1000);
  }
  return 0;
}
