#include "base/checksum.h"
#include "base/files/files.h"
#include "some_checkpoint.h"

#include <sys/mount.h>
#include <sys/stat.h>

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("a committed draft is a valid checkpoint, and latest points to it") {
  const TemporaryFolder folder;
  const auto root = folder / "run" / "checkpoints";
  CHECK(save(root, 7) == root / "step-00000007");
  CHECK(names_in(root) == std::vector<std::string>{"latest", "step-00000007"});
  CHECK(names_in(root / "latest") == std::vector<std::string>{"manifest.json", "state.json", "tensors.safetensors"});
  CHECK(std::filesystem::read_symlink(root / "latest") == "step-00000007");
  const Manifest manifest = verify_checkpoint(root / "latest");
  CHECK(manifest.step == 7);
  CHECK(manifest.versions.at("trainopt") == "0.1.0");
  const std::string state = read_file(root / "latest" / "state.json", ExitCode::bug);
  Checksum checksum;
  checksum.add(state.data(), state.size());
  CHECK(manifest.files.at("state.json") == StoredFile{static_cast<int64_t>(state.size()), checksum.value()});

  std::array<int64_t, 3> values{};
  const SafetensorsFile file(root / "latest" / "tensors.safetensors");
  CHECK(file.read([&](size_t) { return values.data(); }).value() == manifest.files.at("tensors.safetensors").xxh3);
  CHECK(values == std::array<int64_t, 3>{7, 0, 7});
}

TEST_CASE("a draft that is not committed leaves nothing behind") {
  const TemporaryFolder folder;
  {
    CheckpointDraft draft(folder.path(), 3, 1);
    draft.add("a", "bytes");
    CHECK(names_in(folder.path()).size() == 1);
    CHECK(list_checkpoints(folder.path()).empty());
  }
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a checkpoint of the same step is replaced") {
  const TemporaryFolder folder;
  save(folder.path(), 3, 1);
  save(folder.path(), 3, 2);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", "step-00000003"});
  CHECK_THAT(folder.text("latest/state.json"), ContainsSubstring("\"seed\": 2"));
  verify_checkpoint(folder / "latest");
}

TEST_CASE(
    "a draft that does not fit on the disk is refused before anything is written, with the bytes needed and free") {
  const TemporaryFolder folder;
  const auto sentence = error_of(ExitCode::storage, [&] { CheckpointDraft(folder.path(), 3, int64_t{1} << 60); });
  CHECK_THAT(sentence, ContainsSubstring(folder.path().string()) && ContainsSubstring("it needs 1153433.6 TiB") &&
                           ContainsSubstring("free"));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a file name that leaves the folder is a broken invariant") {
  const TemporaryFolder folder;
  CheckpointDraft draft(folder.path(), 3, 1);
  CHECK_THROWS_AS(draft.add("../x", ""), BrokenInvariant);
  CHECK_THROWS_AS(draft.add_tensors("manifest.json", {}), BrokenInvariant);
}

TEST_CASE("a disk that is really full fails the new checkpoint and nothing else") {
  const TemporaryFolder folder;
  if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    WARN("skipped: this user may not mount a small disk");
    return;
  }
  struct Mounted {
    std::filesystem::path path;
    ~Mounted() { ::umount2(path.c_str(), MNT_DETACH); }
  } mounted{folder.path()};
  const auto root = folder.path();
  save(root, 1);
  const auto sentence = error_of(ExitCode::storage, [&] {
    CheckpointDraft draft(root, 2, 1);  // the expected size is far too low
    draft.add("a", std::string(600'000, 'x'));
    draft.add("b", std::string(600'000, 'x'));
    draft.commit(1, {});
  });
  CHECK_THAT(sentence, ContainsSubstring("No space left on device") && ContainsSubstring("/b"));
  CHECK(names_in(root) == std::vector<std::string>{"latest", "step-00000001"});
  verify_checkpoint(root / "latest");
  CHECK_THAT(error_of(ExitCode::storage, [&] { CheckpointDraft(root, 2, 2 << 20); }),
             ContainsSubstring("no room for a checkpoint"));
  save(root, 3);
  CHECK(verify_checkpoint(root / "latest").step == 3);
}

TEST_CASE("a part that another process says to have written must be there") {
  const TemporaryFolder folder;
  CheckpointDraft draft(folder.path(), 5, 64);
  const StoredFile part{.bytes = 4, .xxh3 = 1};
  const auto added = [&] { return error_of(ExitCode::storage, [&] { draft.add_written("part", part); }); };
  CHECK_THAT(added(), ContainsSubstring("part"));
  write_file(draft.folder() / "part", "abc");
  CHECK_THAT(added(), ContainsSubstring("part"));
  write_file(draft.folder() / "part", "abcd");
  CHECK(added() == "");
}
