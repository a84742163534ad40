// Manifests: each input is tried as it is, and with a valid hash, since a fuzzer cannot guess one. An accepted text
// must equal the text that is written for its manifest.
#include "checkpoint/manifest.h"

#include "base/checksum.h"
#include "support.h"

using namespace trainopt;

namespace {

void try_manifest(std::string_view text) {
  try {
    const Manifest manifest = parse_manifest(text);
    FUZZ_CHECK(manifest_text(manifest) == text && manifest.step >= 0 && manifest.world_size >= 1);
    for (const auto& [name, file] : manifest.files)
      FUZZ_CHECK(name.find('/') == std::string::npos && name != "." && name != ".." && file.bytes >= 0);
  } catch (const UserError& error) {
    FUZZ_CHECK(error.code() == ExitCode::checkpoint && std::string_view(error.what()).size() < 1000);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = as_text(data, size);
  try_manifest(text);
  const size_t end = text.rfind(",\n  \"xxh3\": \"");
  if (end == std::string_view::npos) return 0;
  Checksum checksum;
  checksum.add(data, end);
  try_manifest(std::string(text.substr(0, end)) + ",\n  \"xxh3\": \"" + hex(checksum.value()) + "\"\n}\n");
  return 0;
}
