#include "base/files/mapped_file.h"

#include "base/files/files.h"
#include "base/signals.h"
#include "support/catch.h"
#include "support/sanitized.h"
#include "support/temporary_folder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

using namespace trainopt;
namespace fs = std::filesystem;

namespace {

constexpr size_t kPage = 4096, kPages = 4, kBytes = kPages * kPage - 100;

void write_ones(const fs::path& path) { write_file(path, std::string(kBytes, '\1')); }

/// Reads them, however little is done with them.
size_t ones_in(std::span<const uint8_t> bytes) {
  size_t ones = 0;
  for (size_t i = 0; i < bytes.size(); ++i) ones += *static_cast<const volatile uint8_t*>(&bytes[i]);
  return ones;
}

std::string error_of(const std::function<void()>& check, ExitCode code = ExitCode::data) {
  try {
    check();
    return "no error";
  } catch (const UserError& error) {
    CHECK(error.code() == code);
    return error.what();
  }
}

/// The signal that ends a process in which `work` runs; 0: none does.
int signal_that_ends(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("D19: what a mapped file has lost reads as zeros, and the file is named") {
  const TemporaryFolder folder;
  const fs::path path = folder / "data";
  write_ones(path);
  {
    const MappedFile file(path, ExitCode::storage);
    CHECK(ones_in(file.bytes()) == kBytes);
    file.require_whole();
    fs::resize_file(path, kPage);
    CHECK(ones_in(file.bytes()) == kPage);
    const std::string shorter =
        fmt::format("{} became shorter while it was read: {} bytes, before {}", path.string(), kPage, kBytes);
    CHECK(error_of([&] { file.require_whole(); }, ExitCode::storage) == shorter);
    CHECK(error_of(require_mapped_files_whole, ExitCode::storage) == shorter);

    fs::resize_file(path, kBytes);  // what was read as zeros remains so
    CHECK(ones_in(file.bytes()) == kPage);
    CHECK(error_of([&] { file.require_whole(); }, ExitCode::storage) ==
          fmt::format("a part of {} could not be read: it was shorter for a while, or its disk failed", path.string()));
  }
  require_mapped_files_whole();  // the file is no longer mapped
  write_ones(path);
  const MappedFile again(path, ExitCode::data);
  CHECK(ones_in(again.bytes()) == kBytes);
  again.require_whole();
}

TEST_CASE("D19: of many mapped files, the one that lost a part is named") {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<const MappedFile>> files;
  for (int i = 0; i < 50; ++i) {
    const fs::path path = folder / std::to_string(i);
    write_ones(path);
    files.push_back(std::make_unique<const MappedFile>(path, ExitCode::data));
  }
  for (size_t i = 0; i < files.size(); i += 2) files[i].reset();
  fs::resize_file(folder / "31", 0);
  CHECK(error_of(require_mapped_files_whole) == "no error");  // nothing was read yet
  for (const auto& file : files)
    if (file) ones_in(file->bytes());
  CHECK_THAT(error_of(require_mapped_files_whole), ContainsSubstring((folder / "31").string() + " became shorter"));
  files[31].reset();
  CHECK(error_of(require_mapped_files_whole) == "no error");
}

TEST_CASE("D19: several threads may read what a mapped file has lost, those with blocked signals too") {
  const TemporaryFolder folder;
  const fs::path path = folder / "data";
  write_ones(path);
  const MappedFile file(path, ExitCode::data);
  fs::resize_file(path, 0);
  std::vector<size_t> ones(8, kBytes);
  {
    const BlockedSignals blocked;
    std::vector<std::thread> threads;
    for (size_t& mine : ones) threads.emplace_back([&] { mine = ones_in(file.bytes()); });
    for (auto& thread : threads) thread.join();
  }
  CHECK(std::count(ones.begin(), ones.end(), 0u) == 8);
  CHECK_THAT(error_of(require_mapped_files_whole), ContainsSubstring("became shorter"));
}

TEST_CASE("a bus error elsewhere ends the process as before") {
  if (kSanitized) return;  // sanitizers report it and exit
  const TemporaryFolder folder;
  const fs::path path = folder / "data", other = folder / "other";
  write_ones(path);
  write_ones(other);
  const MappedFile file(path, ExitCode::data);
  CHECK(signal_that_ends([] {}) == 0);
  CHECK(signal_that_ends([&] {
          const int fd = ::open(other.c_str(), O_RDONLY);
          const void* mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
          fs::resize_file(other, 0);
          ones_in({static_cast<const uint8_t*>(mapped), kBytes});
        }) == SIGBUS);
  CHECK(signal_that_ends([] { ::raise(SIGBUS); }) == SIGBUS);
}
