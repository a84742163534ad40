#include "base/files/program_files.h"

#include "base/files/mapped_file.h"
#include "base/run_command.h"
#include "support/temporary_folder.h"

#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <string>
#include <utility>
#include <vector>

using namespace trainopt;

namespace {

/// The C library, which distributions build with an ID.
std::string c_library() {
  Dl_info found{};
  REQUIRE(::dladdr(reinterpret_cast<void*>(&::gnu_get_libc_version), &found) != 0);
  return found.dli_fname;
}

}  // namespace

TEST_CASE("a file's build ID is the one that readelf reads") {
  const TemporaryFolder folder;
  const std::string library = c_library();
  const std::string notes = run_command({"/usr/bin/readelf", "--notes", library}, folder.path()).output;
  const std::string label = "Build ID: ";
  REQUIRE(notes.find(label) != std::string::npos);
  const std::string id = notes.substr(notes.find(label) + label.size(), 40);
  CHECK(build_id_of(library) == id);
}

TEST_CASE("what is damaged or no ELF file has no build ID") {
  CHECK(build_id_of("/no/such/file") == "");
  CHECK(build_id_of("/proc") == "");
  CHECK(build_id_of("/proc/self/cmdline") == "");
  const MappedFile library(c_library(), ExitCode::recipe);
  const std::vector<uint8_t> shorter(library.bytes().begin(), library.bytes().begin() + library.size() / 2);
  CHECK(build_id_in(shorter) == "");
  for (size_t bytes = 0; bytes < 4096; ++bytes) {
    // A copy, so that AddressSanitizer sees each read beyond the end.
    const std::vector<uint8_t> cut(library.bytes().begin(), library.bytes().begin() + static_cast<ptrdiff_t>(bytes));
    CHECK(build_id_in(cut) == "");
  }
  std::vector<uint8_t> changed(library.bytes().begin(), library.bytes().begin() + 4096);
  for (size_t byte = 0; byte < 1024; ++byte) {
    const uint8_t before = std::exchange(changed[byte], uint8_t{0xff});
    build_id_in(changed);
    changed[byte] = before;
  }
}
