#include "base/checksum.h"
#include "base/files/file_calls.h"
#include "base/files/files.h"
#include "support/catch.h"
#include "support/file_faults.h"
#include "support/temporary_folder.h"

#include <sys/stat.h>

#include <set>
#include <thread>

using namespace trainopt;

namespace {

template <class Call>
std::string error_of(ExitCode code, const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

/// Interrupts every call once and limits reads and writes to `step` bytes.
class Interruptions : public FileFaults {
 public:
  explicit Interruptions(size_t step) : step_(step) {}
  int before(FileCall, const std::filesystem::path&, size_t& bytes) override {
    bytes = std::min(bytes, step_);
    return (interrupt_ = !interrupt_) ? EINTR : 0;
  }

 private:
  size_t step_;
  bool interrupt_ = false;
};

}  // namespace

TEST_CASE("reads and writes are complete despite signals and short transfers") {
  const TemporaryFolder folder;
  std::string bytes(10'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31);
  Interruptions faults(7);
  const ScopedFileFaults scope(faults);
  write_file(folder / "a", bytes);
  CHECK(read_file(folder / "a", ExitCode::data) == bytes);
  const File file = File::open(folder / "a", ExitCode::data);
  CHECK(file.size() == 10'000);
  std::string part(100, '\0');
  CHECK(file.read_at(5'000, part.data(), 100) == 100);
  CHECK(part == bytes.substr(5'000, 100));
  CHECK(file.read_at(9'950, part.data(), 100) == 50);
}

TEST_CASE("errors name the path and the reason and carry the exit code") {
  const TemporaryFolder folder;
  const std::string a = (folder / "a").string();
  CHECK(error_of(ExitCode::data, [&] { File::open(a, ExitCode::data); }) ==
        "cannot read " + a + ": No such file or directory");
  CHECK(error_of(ExitCode::data, [&] { File::open(folder.path(), ExitCode::data).size(); }) ==
        "cannot read " + folder.path().string() + ": Is a directory");
  write_file(a, "old");
  CHECK(error_of(ExitCode::storage, [&] { File::create(a); }) == "cannot write " + a + ": File exists");
  CHECK(error_of(ExitCode::storage, [&] { make_folder(folder / "x" / "y"); }) ==
        "cannot create the folder " + (folder / "x" / "y").string() + ": No such file or directory");
  CHECK_THAT(error_of(ExitCode::storage, [&] { rename_path(folder / "no", a); }),
             ContainsSubstring("cannot rename " + (folder / "no").string() + " to " + a));
  CHECK_THAT(error_of(ExitCode::storage, [&] { remove_file(a + "/b"); }), ContainsSubstring("Not a directory"));
  CHECK_THAT(error_of(ExitCode::storage, [&] { free_bytes(folder / "no"); }),
             ContainsSubstring((folder / "no").string()));
  File full = File::append_to("/dev/full");
  CHECK(error_of(ExitCode::storage, [&] { full.append("x", 1); }) == "cannot write /dev/full: No space left on device");
  CHECK(full.size() == -1);
  CHECK(free_bytes(folder.path()) > 0);
}

TEST_CASE("reserved space that was not written is released") {
  const TemporaryFolder folder;
  const auto blocks = [&] {
    struct stat status {};
    REQUIRE(::stat((folder / "a").c_str(), &status) == 0);
    return status.st_blocks;
  };
  File file = File::create(folder / "a");
  file.reserve(8 << 20);
  file.append("12345", 5);
  CHECK(file.size() == 5);
  file.close();
  CHECK(folder.text("a") == "12345");
  CHECK(blocks() < 1000);
  for (const int error : {EOPNOTSUPP, ENOSYS, EINVAL, ENOSPC}) {
    FaultAt fault(2, FaultKind::once, error);
    remove_file(folder / "a");
    const ScopedFileFaults scope(fault);
    File again = File::create(folder / "a");
    CHECK((error_of(ExitCode::storage, [&] { again.reserve(5); }) == "") == (error != ENOSPC));
  }
}

TEST_CASE("links are replaced, folders are swapped, and folders are removed with their contents") {
  const TemporaryFolder folder;
  const auto link = folder / "link";
  point_link(link, "one");
  point_link(link, "two");
  CHECK(link_target(link, ExitCode::data) == "two");
  CHECK(path_status(link, ExitCode::data).kind == PathKind::link);
  CHECK(link_target(folder / "absent", ExitCode::data).empty());

  create_folders(folder / "one/deep/");
  create_folders(folder / "one/deep");
  make_folder(folder / "two");
  write_file(folder / "one/deep/file", "bytes");
  std::filesystem::create_symlink(folder / "two", folder / "one/link");
  write_file(folder / "two/stays", "");
  if (exchange_paths(folder / "one", folder / "two")) {
    CHECK(folder.text("two/deep/file") == "bytes");
    CHECK(exchange_paths(folder / "one", folder / "two"));
  }
  remove_folder(folder / "one");
  CHECK(names_in_folder(folder.path(), ExitCode::data) == std::vector<std::string>{"link", "two"});
  CHECK(path_status(folder / "two/stays", ExitCode::data).kind == PathKind::file);
  remove_folder(folder / "one");
  remove_file(folder / "one");
}

TEST_CASE("only one open file can hold the lock") {
  const TemporaryFolder folder;
  File first = File::append_to(folder / "a"), second = File::append_to(folder / "a");
  CHECK(first.lock());
  CHECK_FALSE(second.lock());
  first.close();
  CHECK(second.lock());
}

TEST_CASE("a pipe is read to its end, and a file over the limit is rejected") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const std::string bytes(200'000, 'x');
  std::thread writer([&] { std::ofstream(folder / "pipe") << bytes; });
  CHECK(read_file(folder / "pipe", ExitCode::data) == bytes);
  writer.join();
  write_file(folder / "a", "12345");
  CHECK(read_file(folder / "a", ExitCode::data, 5) == "12345");
  CHECK_THAT(error_of(ExitCode::data, [&] { read_file(folder / "a", ExitCode::data, 4); }),
             ContainsSubstring("is too large: 5 bytes, at most 4"));
  File::create(folder / "sparse").truncate(kMostBytesRead + 1);  // takes no space on the disk
  CHECK_THAT(error_of(ExitCode::data, [&] { read_file(folder / "sparse", ExitCode::data); }),
             ContainsSubstring("is too large: 4294967297 bytes, at most 4294967296"));
  CHECK(!read_file("/proc/self/stat", ExitCode::data).empty());
}

TEST_CASE("a replaced file has the old bytes or the new, whichever call fails") {
  const std::string old_bytes(100, 'o'), new_bytes(300, 'n');
  const auto check = [&](const std::filesystem::path& folder, const std::string& name) {
    const std::string now = read_file(folder / name, ExitCode::data);
    REQUIRE((now == old_bytes || now == new_bytes));
    write_file(folder / name, new_bytes);
    REQUIRE(read_file(folder / name, ExitCode::data) == new_bytes);
  };
  int64_t calls = 0;
  {
    const MemoryFolder folder;
    FaultAt count;
    const ScopedFileFaults scope(count);
    write_file(folder / "a", new_bytes);
    calls = count.calls();
  }
  REQUIRE(calls == 8);  // remove, open, write, sync, close, rename, open, sync
  for (int64_t at = 1; at <= calls; ++at) {
    INFO("call " << at);
    for (const FaultKind kind : {FaultKind::once, FaultKind::from_then_on, FaultKind::short_write})
      for (const int error : {ENOSPC, EIO, EDQUOT, EROFS}) {
        const MemoryFolder folder;
        const auto a = folder / "a";
        write_file(a, old_bytes);
        {
          FaultAt fault(at, kind, error);
          const ScopedFileFaults scope(fault);
          const std::string sentence = error_of(ExitCode::storage, [&] { write_file(a, new_bytes); });
          const bool fails = kind != FaultKind::short_write || at == 3;
          REQUIRE(sentence == (fails ? fmt::format("cannot write {}: {}", a.string(), std::strerror(error)) : ""));
        }
        REQUIRE(names_in_folder(folder.path(), ExitCode::data) == std::vector<std::string>{"a"});
        check(folder.path(), "a");
      }
    for (const FaultKind kind : {FaultKind::kill, FaultKind::short_kill}) {
      const MemoryFolder folder;
      write_file(folder / "a", old_bytes);
      killed<FaultAt>([&] { return FaultAt(at, kind); }, [&] { write_file(folder / "a", new_bytes); });
      check(folder.path(), "a");
    }
    for (const bool synced : {false, true}) {
      const MemoryFolder folder;
      make_folder(folder / "before");
      write_file(folder / "before" / "a", old_bytes);
      REQUIRE(killed<PowerFailure>(
          [&] {
            return PowerFailure(folder / "before", folder / "after", {synced, synced}, at);
          },
          [&] { write_file(folder / "before" / "a", new_bytes); }));
      check(folder / "after", "a");
    }
  }
}

TEST_CASE("a written file and its name survive a power failure") {
  const MemoryFolder folder;
  make_folder(folder / "before");
  REQUIRE(killed<PowerFailure>(
      [&] {
        return PowerFailure(folder / "before", folder / "after", {true, true}, 9);
      },
      [&] {
        write_file(folder / "before" / "a", "bytes");
        write_file(folder / "before" / "b", "bytes");
      }));
  CHECK(names_in_folder(folder / "after", ExitCode::data) == std::vector<std::string>{"a"});
  CHECK(folder.text("after/a") == "bytes");
}

TEST_CASE("a checksum does not depend on how its input is split, and matches xxhsum") {
  Checksum whole, pieces;
  const std::string text = "Nobody inspects the spammish repetition";
  whole.add(text.data(), text.size());
  for (const char& c : text) pieces.add(&c, 1);
  CHECK(whole.value() == pieces.value());
  CHECK(whole.bytes() == 39);
  CHECK(hex(Checksum().value()) == "2d06800538d394c2");  // XXH3 of nothing
  CHECK(hex(0xab) == "00000000000000ab");
}
