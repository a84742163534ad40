// Tests the cache on a disk: whatever happens to it or to the processes that use it, the bytes are the far file's.
#include "base/error.h"
#include "base/files/files.h"
#include "base/philox.h"
#include "storage/cache_file.h"
#include "storage/disk_cache.h"
#include "support/captured_log.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace trainopt;
namespace fs = std::filesystem;

namespace {

uint8_t byte_at(int64_t offset, int64_t salt) { return static_cast<uint8_t>((offset * 2654435761LL + salt) >> 7); }

/// A remote file whose bytes follow from their offsets.
class FarFile : public DataFile {
 public:
  FarFile(const std::string& name, int64_t size, int64_t salt = 0)
      : DataFile(name, size, std::to_string(salt)), salt_(salt) {}

  std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const override {
    if (fails) throw UserError("far away", ExitCode::data);
    ++reads;
    if (records) asked.emplace_back(offset, bytes);
    bytes -= cut;
    scratch.resize(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < bytes; ++i) scratch[static_cast<size_t>(i)] = byte_at(offset + i, salt_);
    return scratch;
  }
  void expect(int64_t offset, int64_t bytes) const override { expected.emplace_back(offset, bytes); }
  int64_t reads_ahead() const override { return 2; }

  mutable std::atomic<int64_t> reads{0};
  mutable std::vector<std::pair<int64_t, int64_t>> expected, asked;
  bool records = false;
  bool fails = false;
  int64_t cut = 0;  ///< bytes that are missing from an answer

 private:
  int64_t salt_;
};

constexpr int64_t kSize = 10 * kCacheBlock + 1234;
constexpr int64_t kRoomy = 64 << 20;

/// Reads `times` ranges and compares every byte.
bool reads_right(const DataFile& file, int64_t salt, int times, uint64_t seed) {
  PhiloxStream random(seed, 0);
  std::vector<uint8_t> scratch;
  for (int i = 0; i < times; ++i) {
    const auto offset = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(file.size())));
    const auto most = static_cast<uint64_t>(std::min<int64_t>(file.size() - offset, 3 * kCacheBlock));
    const auto bytes = static_cast<int64_t>(random.next_below(most + 1));
    const auto read = file.read(offset, bytes, scratch);
    if (std::ssize(read) != bytes) return false;
    for (int64_t k = 0; k < bytes; ++k)
      if (read[static_cast<size_t>(k)] != byte_at(offset + k, salt)) return false;
  }
  return true;
}

bool reads_all_right(const DataFile& file, int64_t salt) {
  std::vector<uint8_t> scratch;
  const auto all = file.read(0, file.size(), scratch);
  for (int64_t k = 0; k < file.size(); ++k)
    if (all[static_cast<size_t>(k)] != byte_at(k, salt)) return false;
  return true;
}

/// The cache's view of a far file, with access to both.
struct Opened {
  Opened(DiskCache& cache, const std::string& name, int64_t size = kSize, int64_t salt = 0) {
    auto file = std::make_unique<FarFile>(name, size, salt);
    far = file.get();
    near = cache.through(std::move(file));
  }
  FarFile* far;
  std::unique_ptr<const DataFile> near;
};

std::vector<fs::path> cache_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == kCacheEnding) files.push_back(entry.path());
  return files;
}

std::string name_of(const std::string& far, int64_t salt = 0) {
  return fmt::format("{:016x}{}", cache_identity(FarFile(far, kSize, salt)), kCacheEnding);
}

}  // namespace

TEST_CASE("what was read once is read from the cache, also by another process") {
  const TemporaryFolder folder;
  const DiskCacheOptions options{.folder = folder / "new/cache", .size = kRoomy};
  {
    DiskCache cache(options);
    const Opened file(cache, "s3://b/a");
    CHECK(file.near->name() == "s3://b/a");
    CHECK(reads_right(*file.near, 0, 100, 1));
    CHECK(reads_all_right(*file.near, 0));
    const int64_t reads = file.far->reads;
    CHECK(reads_right(*file.near, 0, 100, 2));
    CHECK(file.far->reads == reads);
    CHECK(cache.counters().missed_bytes == kSize);
    CHECK(cache.counters().hit_bytes > 0);
  }
  DiskCache again(options);
  const Opened file(again, "s3://b/a");
  file.far->fails = true;
  CHECK(reads_all_right(*file.near, 0));
  const Opened changed(again, "s3://b/a", kSize, 7);  // another version
  CHECK(reads_all_right(*changed.near, 7));
  CHECK(cache_files(options.folder).size() == 2);
}

TEST_CASE("only what is missing is announced, as it will be read") {
  const TemporaryFolder folder;
  DiskCache cache({.folder = folder.path(), .size = kRoomy});
  const Opened file(cache, "a");
  std::vector<uint8_t> scratch;
  file.near->read(2 * kCacheBlock, 1, scratch);
  file.near->expect(kCacheBlock + 5, 3 * kCacheBlock);
  CHECK((file.far->expected ==
         std::vector<std::pair<int64_t, int64_t>>{{kCacheBlock, kCacheBlock}, {3 * kCacheBlock, 2 * kCacheBlock}}));
  file.far->expected.clear();
  file.near->expect(kSize - 1, 1);
  CHECK((file.far->expected == std::vector<std::pair<int64_t, int64_t>>{{10 * kCacheBlock, 1234}}));
}

TEST_CASE("neighbours that share a block are each asked for as announced") {
  const TemporaryFolder folder;
  DiskCache cache({.folder = folder.path(), .size = kRoomy});
  const Opened file(cache, "a");
  file.far->records = true;
  const int64_t sample = kCacheBlock + kCacheBlock / 2;
  for (int64_t i = 0; i < 6; ++i) file.near->expect(i * sample, sample);
  std::vector<uint8_t> scratch;
  for (int64_t i = 0; i < 6; ++i) file.near->read(i * sample, sample, scratch);
  CHECK((file.far->asked == file.far->expected));
  CHECK(file.far->asked.size() == 6);
}

TEST_CASE("an error from afar is passed on, and nothing is stored for it") {
  const TemporaryFolder folder;
  DiskCache cache({.folder = folder.path(), .size = kRoomy});
  Opened file(cache, "a");
  file.far->fails = true;
  CHECK_THROWS_WITH(reads_all_right(*file.near, 0), "far away");
  file.far->fails = false;
  file.far->cut = 1;
  CHECK_THROWS_AS(reads_all_right(*file.near, 0), BrokenInvariant);
  file.far->cut = 0;
  CHECK(reads_all_right(*file.near, 0));
}

TEST_CASE("any damaged part of a cache file is noticed, and healed") {
  const TemporaryFolder folder;
  const DiskCacheOptions options{.folder = folder.path(), .size = kRoomy};
  {
    DiskCache cache(options);
    CHECK(reads_all_right(*Opened(cache, "a").near, 0));
  }
  const auto path = cache_files(folder.path()).front();
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  constexpr int64_t kTable = 4096, kData = 8192;
  const int64_t at =
      GENERATE_COPY(int64_t{0}, int64_t{100}, kTable, kTable + 10 * 8 + 7, kData, kData + 5 * kCacheBlock, bytes - 1);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    char byte = 0;
    file.seekg(at).get(byte);
    file.seekp(at).put(static_cast<char>(byte ^ 0x10));
  }
  for (int round = 0; round < 2; ++round) {
    DiskCache cache(options);
    const Opened file(cache, "a");
    CHECK(reads_all_right(*file.near, 0));
    if (round == 1) CHECK(file.far->reads == 0);
    CHECK(cache.counters().damaged == (round == 0 && at >= kTable ? 1 : 0));
  }
}

TEST_CASE("a cache file of another file or version is made anew, whatever its name") {
  const TemporaryFolder folder;
  const DiskCacheOptions options{.folder = folder.path(), .size = kRoomy};
  {
    DiskCache cache(options);
    for (const std::string name : {"a", "c"}) CHECK(reads_all_right(*Opened(cache, name).near, 0));
  }
  fs::rename(folder / name_of("a"), folder / name_of("b", 5));
  fs::rename(folder / name_of("c"), folder / name_of("c", 5));
  DiskCache cache(options);
  for (const std::string name : {"b", "c"}) CHECK(reads_all_right(*Opened(cache, name, kSize, 5).near, 5));
}

TEST_CASE("a cut cache file is made anew") {
  const TemporaryFolder folder;
  const DiskCacheOptions options{.folder = folder.path(), .size = kRoomy};
  for (const int64_t bytes : {int64_t{0}, int64_t{4096}, kSize}) {
    {
      DiskCache cache(options);
      CHECK(reads_all_right(*Opened(cache, "a").near, 0));
    }
    fs::resize_file(cache_files(folder.path()).front(), static_cast<uintmax_t>(bytes));
    DiskCache cache(options);
    CHECK(reads_all_right(*Opened(cache, "a").near, 0));
  }
}

TEST_CASE("a cache file that is cut while it is open ends no process") {
  const TemporaryFolder folder;
  DiskCache cache({.folder = folder.path(), .size = kRoomy});
  const Opened file(cache, "a");
  CHECK(reads_all_right(*file.near, 0));
  for (const int64_t bytes : {int64_t{0}, int64_t{4097}, kSize}) {
    fs::resize_file(cache_files(folder.path()).front(), static_cast<uintmax_t>(bytes));
    CHECK(reads_all_right(*file.near, 0));
  }
}

TEST_CASE("without verify, a block is compared only the first time after opening") {
  const TemporaryFolder folder;
  const DiskCacheOptions options{.folder = folder.path(), .size = kRoomy, .verify = false};
  const auto damage = [&] {
    std::fstream file(cache_files(folder.path()).front(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8192).put(static_cast<char>(byte_at(0, 0) ^ 1));
  };
  DiskCache cache(options);
  const Opened file(cache, "a");
  for (int i = 0; i < 2; ++i) CHECK(reads_all_right(*file.near, 0));
  damage();
  CHECK_FALSE(reads_all_right(*file.near, 0));
  CHECK(reads_all_right(*Opened(cache, "a").near, 0));
  CHECK(cache.counters().damaged == 1);
}

TEST_CASE("what was opened longest ago is removed first") {
  const TemporaryFolder folder;
  const int64_t room = 38 * kCacheBlock;
  int64_t second = 1'000'000'000;
  for (const std::string name : {"b", "c", "a"}) {
    DiskCache cache({.folder = folder.path(), .size = room});
    CHECK(reads_all_right(*Opened(cache, name).near, 0));
    const timespec times[2] = {{0, UTIME_OMIT}, {++second, 0}};
    REQUIRE(::utimensat(AT_FDCWD, (folder / name_of(name)).c_str(), times, 0) == 0);
  }
  DiskCache cache({.folder = folder.path(), .size = room});
  Opened(cache, "b");  // c is the oldest now
  const Opened file(cache, "d");
  CHECK(reads_all_right(*file.near, 0));
  for (const std::string name : {"a", "b", "d"}) CHECK(fs::exists(folder / name_of(name)));
  CHECK_FALSE(fs::exists(folder / name_of("c")));
}

TEST_CASE("drafts of killed processes are removed, those of living ones are not") {
  const TemporaryFolder folder;
  const fs::path dead = folder / "0123456789abcdef.cache.1.1", living = folder / "0123456789abcdef.cache.1.2";
  for (const auto& path : {dead, living}) std::ofstream(path) << "half";
  const int lock = ::open(living.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(lock, LOCK_SH) == 0);
  DiskCache cache({.folder = folder.path(), .size = kRoomy});
  CHECK(reads_all_right(*Opened(cache, "a").near, 0));
  CHECK_FALSE(fs::exists(dead));
  CHECK(fs::exists(living));
  ::close(lock);
}

TEST_CASE("a full cache keeps what is in use, and removes what is not") {
  const TemporaryFolder folder;
  const int64_t room = 24 * kCacheBlock;
  DiskCache cache({.folder = folder.path(), .size = room});
  const auto taken = [&] {
    int64_t sum = 0;
    for (const auto& path : cache_files(folder.path())) {
      struct stat status {};
      ::stat(path.c_str(), &status);
      sum += int64_t{status.st_blocks} * 512;
    }
    return sum;
  };
  {
    const Opened first(cache, "first"), second(cache, "second"), third(cache, "third");
    for (const auto* file : {&first, &second, &third}) CHECK(reads_all_right(*file->near, 0));
    CHECK(cache_files(folder.path()).size() == 3);  // all in use
    CHECK(taken() <= room);
    const int64_t before = cache.counters().hit_bytes;
    CHECK(reads_all_right(*first.near, 0));
    CHECK(cache.counters().hit_bytes > before);
  }
  DiskCache later({.folder = folder.path(), .size = room});
  const Opened fourth(later, "fourth");
  for (int64_t block = 0; block < 10; ++block) {
    std::vector<uint8_t> scratch;
    fourth.near->read(block * kCacheBlock, kCacheBlock, scratch);
  }
  CHECK(later.counters().missed_bytes == 10 * kCacheBlock);
  CHECK(reads_all_right(*fourth.near, 0));
  CHECK(later.counters().hit_bytes >= 10 * kCacheBlock);
  CHECK(taken() <= room);
}

TEST_CASE("a disk that refuses is gone around, with one warning") {
  const TemporaryFolder folder;
  DiskCache cache({.folder = folder / "cache", .size = kRoomy});
  fs::remove(folder / "cache");
  write_file(folder / "cache", "in the way");
  const CapturedLog log;
  CHECK(reads_all_right(*Opened(cache, "a").near, 0));
  CHECK(reads_all_right(*Opened(cache, "b").near, 0));
  CHECK(log.lines() == 1);
  CHECK_THAT(log.text(), ContainsSubstring("data.cache stores nothing more in this run"));
}

namespace {

/// Makes every write past this place in a file fail.
class LimitedFiles {
 public:
  explicit LimitedFiles(int64_t bytes) : ignored_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{static_cast<rlim_t>(bytes), before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~LimitedFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, ignored_);
  }
  LimitedFiles(const LimitedFiles&) = delete;
  LimitedFiles& operator=(const LimitedFiles&) = delete;

 private:
  void (*ignored_)(int);
  rlimit before_{};
};

}  // namespace

TEST_CASE("a write that fails half-way through any block costs only what is not stored") {
  for (int64_t block = 0; block <= 10; ++block) {
    const TemporaryFolder folder;
    const DiskCacheOptions options{.folder = folder.path(), .size = kRoomy};
    const CapturedLog log;
    {
      DiskCache cache(options);
      const Opened file(cache, "a");
      bool right = false;
      {
        const LimitedFiles limited(8192 + block * kCacheBlock + 1000);
        right = reads_all_right(*file.near, 0) && reads_all_right(*file.near, 0);
      }
      CHECK(right);
      CHECK(cache.counters().hit_bytes == block * kCacheBlock);
    }
    CHECK(log.lines() == 1);
    CHECK_THAT(log.text(), ContainsSubstring(folder.path().string() + ": File too large"));
    DiskCache again(options);
    CHECK(reads_all_right(*Opened(again, "a").near, 0));
    CHECK(again.counters().hit_bytes == block * kCacheBlock);
    CHECK(again.counters().damaged == 0);
  }
}

TEST_CASE("a folder with other files is refused, and they stay") {
  const TemporaryFolder folder;
  const std::string name = GENERATE("thesis.tex", "thesis.cache", "0123456789abcdef.cache.old");
  write_file(folder / name, "x");
  try {
    DiskCache cache({.folder = folder.path(), .size = kRoomy});
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::data);
    CHECK_THAT(error.what(), ContainsSubstring("other files") && ContainsSubstring(name));
  }
  CHECK(fs::exists(folder / name));
}

TEST_CASE("threads of two caches share a folder") {
  const TemporaryFolder folder;
  DiskCache one({.folder = folder.path(), .size = kRoomy}), other({.folder = folder.path(), .size = kRoomy});
  const Opened in_one(one, "a"), in_other(other, "a");
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] { right += reads_right(i % 2 == 0 ? *in_one.near : *in_other.near, 0, 200, i); });
  for (auto& thread : threads) thread.join();
  CHECK(right == 4);
  CHECK(reads_all_right(*in_one.near, 0));
  const int64_t reads = in_other.far->reads;
  CHECK(reads_all_right(*in_other.near, 0));  // what the other stored
  CHECK(in_other.far->reads == reads);
}

namespace {

/// Starts a process that reads through the cache until it is killed, and kills it at a moment that differs each time.
void kill_again_and_again(int times, int64_t size) {
  const TemporaryFolder folder;
  const DiskCacheOptions options{.folder = folder.path(), .size = size};
  const auto name = [](int i) { return "file " + std::to_string(i % 5); };
  for (int i = 0; i < times; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      DiskCache cache(options);
      for (uint64_t seed = 0;; ++seed)
        reads_right(*Opened(cache, name(i + static_cast<int>(seed % 2)), kSize, 3).near, 3, 5,
                    seed + static_cast<uint64_t>(i));
    }
    ::usleep(static_cast<useconds_t>(200 + (i * 7919) % 5000));
    ::kill(child, SIGKILL);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    if (i % 10 != 9) continue;
    DiskCache cache(options);
    for (int k = 0; k < 5; ++k) REQUIRE(reads_all_right(*Opened(cache, name(k), kSize, 3).near, 3));
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      REQUIRE(is_cache_name(entry.path().filename().string()));
      fs::remove(entry.path());  // so that the next ten store again
    }
  }
}

}  // namespace

TEST_CASE("a thousand processes that are killed leave no wrong byte") {
  kill_again_and_again(500, kRoomy);
  kill_again_and_again(500, 24 * kCacheBlock);
}
