// Where ranks meet, and what they believe there.
#include "comm/rendezvous.h"

#include "base/files/files.h"
#include "comm/store.h"
#include "support/captured_log.h"
#include "support/catch.h"
#include "support/hash_store.h"
#include "support/ranks.h"

#include <sys/stat.h>

#include <future>

using namespace trainopt;
namespace fs = std::filesystem;

namespace {

constexpr const char* kKey = "0123456789abcdef0123456789abcdef";

}  // namespace

TEST_CASE("a sealed store believes only what was written with its key, under the name it was written to") {
  const auto open = c10::make_intrusive<c10d::HashStore>();
  open->setTimeout(std::chrono::milliseconds(50));
  const auto sealed = sealed_store(open, kKey), stranger = sealed_store(open, "another key, as long");
  const CapturedLog log;
  sealed->set("a", "hello");
  CHECK(sealed->get_to_str("a") == "hello");
  CHECK(sealed->check({"a"}));
  CHECK_FALSE(sealed->check({"a", "absent"}));
  CHECK_FALSE(stranger->check({"a"}));

  const auto set_openly = [&](const char* name, const std::string& value) {
    open->set(name, std::vector<uint8_t>(value.begin(), value.end()));
  };
  set_openly("b", "no seal");
  open->set("c", open->get("a"));  // moved from another name
  stranger->set("d", "hello");
  set_openly("e", "");
  for (const char* name : {"b", "c", "d", "e"}) {
    CHECK_FALSE(sealed->check({name}));
    CHECK_THROWS_AS(sealed->get(name), c10::DistStoreError);
  }
  CHECK(open->get_to_str("a").find(kKey) == std::string::npos);
  sealed->set("b", "");  // the job's own value replaces a stranger's
  CHECK(sealed->get_to_str("b").empty());
  CHECK(sealed->clone()->get_to_str("a") == "hello");
  const auto part = c10::make_intrusive<c10d::PrefixStore>("part", sealed);
  part->set("a", "of the part");
  CHECK(part->get_to_str("a") == "of the part");
}

TEST_CASE("the port file is this user's alone") {
  const TemporaryFolder folder;
  const PortFile file(folder.path(), "job");
  CHECK_FALSE(file.read());
  file.write({4711, kKey});
  CHECK(file.read()->port == 4711);
  CHECK(file.read()->key == kKey);
  struct stat of_file {
  }, of_folder{};
  REQUIRE(::stat(file.path().c_str(), &of_file) == 0);
  REQUIRE(::stat(file.path().parent_path().c_str(), &of_folder) == 0);
  CHECK((of_file.st_mode & 0777) == 0600);
  CHECK((of_folder.st_mode & 0777) == 0700);

  write_file(file.path(), "99999 x");
  CHECK_FALSE(file.read());
  fs::remove(file.path());
  fs::create_symlink(folder / "elsewhere", file.path());
  write_file(folder / "elsewhere", "4711 x");
  CHECK_FALSE(file.read());

  fs::permissions(file.path().parent_path(), fs::perms::all);
  try {
    const PortFile open_to_all(folder.path(), "job");
    FAIL("accepted a folder that others may write to");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::storage);
    CHECK_THAT(error.what(), ContainsSubstring(file.path().parent_path().string()));
  }
}

TEST_CASE("a rank that finds an earlier job's port file waits for its own rank 0") {
  const TemporaryFolder folder;
  const PortFile file(folder.path(), "test");
  const auto options = [&](int64_t rank) { return rendezvous_of_thread(folder, rank, 2, 30); };
  RendezvousOptions of_others = options(0);
  of_others.job = "another";
  const Rendezvous other = join_rendezvous(of_others);  // listens, and serves another job
  for (const int stale : {1, other.port}) {             // nobody listens at port 1
    file.write({stale, kKey});
    auto joined = std::async(std::launch::async, [&] { return join_rendezvous(options(1)); });
    CHECK(joined.wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout);
    const Rendezvous mine = join_rendezvous(options(0));
    CHECK(joined.get().port == mine.port);
  }
}

TEST_CASE("a rank whose rank 0 never comes names the file, and the port in it") {
  const TemporaryFolder folder;
  const PortFile file(folder.path(), "test");
  const auto message = [&] {
    try {
      join_rendezvous(rendezvous_of_thread(folder, 1, 2, 0.3));
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::peer);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(message(), ContainsSubstring("no file " + file.path().string()));
  file.write({1, kKey});
  CHECK_THAT(message(), ContainsSubstring(file.path().string() + " names the port 1,"));
}
