#include "base/files/held_folder.h"

#include "base/files/file_calls.h"
#include "base/files/files.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace trainopt;
namespace fs = std::filesystem;

TEST_CASE("files of a held folder are followed when it is renamed, and its name's new folder is not touched") {
  const TemporaryFolder folder;
  const fs::path mine = folder / "job", moved = folder / "job-old";
  create_folders(mine / "sub");
  const HeldFolder held(mine);
  CHECK(held.name() == HeldFolder::Name::leads_here);
  CHECK(path_for_others(mine / "a") == mine / "a");
  write_file(mine / "a", "before");

  fs::rename(mine, moved);
  CHECK(held.name() == HeldFolder::Name::gone);
  write_file(mine / "b", "after");
  CHECK_FALSE(fs::exists(mine));

  fs::create_directory(mine);
  fs::create_directory(folder / "job-2");
  CHECK(held.name() == HeldFolder::Name::taken);
  CHECK(held.now() == fs::canonical(moved));
  CHECK(path_for_others(mine / "a") == fs::canonical(moved) / "a");

  // Every call: each would otherwise reach the new folder, or fail there.
  write_file(mine / "sub/c", "c");
  point_link(mine / "latest", "sub");
  create_folders(mine / "made/within");
  CHECK(read_file(mine / "a", ExitCode::data) == "before");
  CHECK(names_in_folder(mine, ExitCode::data) == std::vector<std::string>{"a", "b", "latest", "made", "sub"});
  CHECK(link_target(mine / "latest", ExitCode::data) == "sub");
  CHECK(path_status(mine / "b", ExitCode::data).bytes == 5);
  CHECK(kind_of(mine / "sub") == PathKind::folder);
  rename_path(mine / "b", mine / "sub/b");
  CHECK(exchange_paths(mine / "sub/b", mine / "a"));
  CHECK(free_bytes(mine / "made") > 0);
  sync_folder(mine);
  remove_folder(mine / "made");
  remove_file(mine / "latest");
  File::append_to(mine / "log").append("x", 1);
  CHECK(read_file(moved / "a", ExitCode::data) == "after");
  CHECK(read_file(moved / "log", ExitCode::data) == "x");
  CHECK_FALSE(fs::exists(moved / "made"));
  CHECK(fs::is_empty(mine));

  write_file(folder / "job-2/d", "d");  // its name only begins alike
  CHECK(fs::exists(folder / "job-2/d"));
}

TEST_CASE("a held folder that was removed is known to be gone for good") {
  const TemporaryFolder folder;
  create_folders(folder / "job");
  const HeldFolder held(folder / "job/");
  fs::remove_all(folder / "job");
  CHECK(held.name() == HeldFolder::Name::no_folder);
  fs::create_directory(folder / "job");
  CHECK(held.name() == HeldFolder::Name::no_folder);
  CHECK_THROWS_AS(write_file(folder / "job/a", "a"), FileError);
  CHECK(fs::is_empty(folder / "job"));
}

TEST_CASE("without a holder a name leads wherever it leads") {
  const TemporaryFolder folder;
  create_folders(folder / "job");
  { const HeldFolder held(folder / "job"); }
  fs::rename(folder / "job", folder / "old");
  CHECK_THROWS_AS(write_file(folder / "job/a", "a"), FileError);
}
