#include "checkpoint/run_lock.h"

#include "base/files/files.h"
#include "some_checkpoint.h"
#include "support/file_faults.h"

#include <signal.h>

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("a second run in the same directory is refused with host and process of the first") {
  const TemporaryFolder folder;
  const auto second = [&] { return error_of(ExitCode::recipe, [&] { RunLock lock(folder.path()); }); };
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  {
    const RunLock lock(folder.path());
    CHECK(folder.text(".lock") == fmt::format("{} {}\n", host.data(), ::getpid()));
    CHECK_THAT(second(), ContainsSubstring(fmt::format("process {} on {}", ::getpid(), host.data())) &&
                             ContainsSubstring(folder.path().string()));
  }
  CHECK(second() == "");
}

TEST_CASE("the lock is released when its process is killed") {
  const TemporaryFolder folder;
  const auto is_free = [&] { return error_of(ExitCode::recipe, [&] { RunLock lock(folder.path()); }) == ""; };
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder.path());
    if (::write(pipe[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char ready = 0;
  REQUIRE(::read(pipe[0], &ready, 1) == 1);
  CHECK_FALSE(is_free());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(is_free());
}

TEST_CASE("a lock that cannot be written is a storage error; a file system without locks is only a warning") {
  const TemporaryFolder folder;
  const auto with_fault = [&](int64_t at, int error) {
    FaultAt fault(at, FaultKind::once, error);
    const ScopedFileFaults scope(fault);
    return error_of(ExitCode::storage, [&] { RunLock lock(folder.path()); });
  };
  CHECK_THAT(with_fault(1, EROFS), ContainsSubstring(".lock: Read-only file system"));
  CHECK_THAT(with_fault(2, EIO), ContainsSubstring("cannot lock"));
  CHECK_THAT(with_fault(4, ENOSPC), ContainsSubstring(".lock: No space left on device"));
  CHECK(with_fault(2, ENOLCK) == "");
  CHECK_THAT(error_of(ExitCode::storage, [&] { RunLock lock(folder / "absent"); }), ContainsSubstring("absent/.lock"));
}

TEST_CASE("a lock that is a symbolic link is refused, and what it leads to stays as it is") {
  const TemporaryFolder folder;
  write_file(folder / "precious", "precious");
  std::filesystem::create_directory(folder / "run");
  std::filesystem::create_symlink(folder / "precious", folder / "run/.lock");
  CHECK_THAT(error_of(ExitCode::storage, [&] { RunLock lock(folder / "run"); }), ContainsSubstring("symbolic link"));
  CHECK(folder.text("precious") == "precious");
}

TEST_CASE("an attempt of a job goes on only in the folder whose last holder was the same job") {
  const TemporaryFolder folder;
  { const RunLock first(folder.path(), "job-1"); }
  { const RunLock again(folder.path(), "job-1", /*again=*/true); }
  { const RunLock another(folder.path(), "job-2"); }
  const std::string before = folder.text(".lock");
  CHECK_THAT(error_of(ExitCode::storage, [&] { RunLock lock(folder.path(), "job-1", /*again=*/true); }),
             ContainsSubstring(folder.path().string()));
  CHECK(folder.text(".lock") == before);
}
