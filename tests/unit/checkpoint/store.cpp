#include "base/files/files.h"
#include "some_checkpoint.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {
std::string refusal(const std::filesystem::path& folder) {
  return error_of(ExitCode::checkpoint, [&] { verify_checkpoint(folder); });
}
}  // namespace

TEST_CASE("checkpoints are listed by step, not by time stamp") {
  const TemporaryFolder folder;
  for (const int64_t step : {900, 20000000, 100000000, 1000}) save(folder.path(), step);
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const int64_t step : {1000, 900})
    std::filesystem::last_write_time(folder / checkpoint_name(step), now + std::chrono::hours(step));
  for (const char* name : {"step-1", "step-00000001x", "step--0000001", "step-000000001", ".step-00000001.1.2",
                           "step-99999999999999999999", "step-"})
    std::filesystem::create_directory(folder / name);
  write_file(folder / "step-00000005", "a file");
  CHECK(steps(folder.path()) == std::vector<int64_t>{100000000, 20000000, 1000, 900});
  CHECK(list_checkpoints(folder / "absent").empty());
}

TEST_CASE("a checkpoint with any byte changed, cut off, missing or added is refused") {
  const TemporaryFolder folder;
  const auto checkpoint = save(folder.path(), 12);
  REQUIRE(refusal(checkpoint) == "");
  for (const auto& name : names_in(checkpoint)) {
    const std::string good = read_file(checkpoint / name, ExitCode::bug);
    const auto refused_with = [&](const std::string& bytes) {
      std::ofstream(checkpoint / name, std::ios::binary) << bytes;
      CHECK_THAT(refusal(checkpoint), ContainsSubstring(checkpoint.string()));
    };
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
      refused_with(bad);
    }
    refused_with(good + "x");
    refused_with(good.substr(0, good.size() - 1));
    refused_with("");
    std::filesystem::remove(checkpoint / name);
    CHECK_THAT(refusal(checkpoint), ContainsSubstring(name));
    std::filesystem::create_symlink("state.json", checkpoint / name);
    CHECK(refusal(checkpoint) != "");
    std::filesystem::remove(checkpoint / name);
    write_file(checkpoint / name, good);
    REQUIRE(refusal(checkpoint) == "");
  }
  write_file(checkpoint / "more", "");
  CHECK_THAT(refusal(checkpoint), ContainsSubstring("more is not listed in its manifest"));
}

TEST_CASE("a checkpoint under the name of another step is refused") {
  const TemporaryFolder folder;
  std::filesystem::rename(save(folder.path(), 12), folder / "step-00000013");
  CHECK_THAT(refusal(folder / "step-00000013"), ContainsSubstring("its manifest belongs to step 12"));
  std::filesystem::rename(folder / "step-00000013", folder / "a copy");
  CHECK(refusal(folder / "a copy") == "");
  CHECK(refusal(folder / "a copy/") == "");
}

TEST_CASE("a path that is not a checkpoint is refused, suggesting one where possible") {
  const TemporaryFolder folder;
  save(folder / "run" / "checkpoints", 5);
  CHECK_THAT(refusal(folder / "run"),
             ContainsSubstring("name one of them, such as " + (folder / "run" / "checkpoints" / "latest").string()));
  CHECK_THAT(refusal(folder / "run" / "checkpoints"),
             ContainsSubstring("such as " + (folder / "run" / "checkpoints" / "latest").string()));
  CHECK_THAT(refusal(folder / "run" / "checkpoints" / "latest" / "state.json"), ContainsSubstring("this is a file"));
  CHECK_THAT(refusal(folder / "absent"), ContainsSubstring("there is no checkpoint"));
  std::filesystem::create_directory(folder / "empty");
  CHECK_THAT(refusal(folder / "empty"), ContainsSubstring("it has no manifest.json"));
}

TEST_CASE("a pickle is refused and never executed") {
  const TemporaryFolder folder;
  const auto witness = folder / "was-run";
  const std::string program = fmt::format("cos\nsystem\n(S'touch {}'\ntR.", witness.string());
  const std::vector<std::pair<std::string, std::string>> files{{"model.pt", program},
                                                               {"model.ckpt", program},
                                                               {"pytorch_model.bin", program},
                                                               {"zip", "PK\x03\x04" + program},
                                                               {"plain", "\x80\x02" + program}};
  for (const auto& [name, bytes] : files) {
    write_file(folder / name, bytes);
    const std::string sentence = refusal(folder / name);
    CHECK_THAT(sentence, ContainsSubstring((folder / name).string()) && ContainsSubstring("can run any code") &&
                             ContainsSubstring("safetensors"));
  }
  CHECK_FALSE(std::filesystem::exists(witness));
}

TEST_CASE("pruning keeps the newest checkpoints, the requested ones and the one latest points to") {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 6; ++step) save(folder.path(), step);
  prune_checkpoints(folder.path(), 6);
  CHECK(steps(folder.path()).size() == 6);
  prune_checkpoints(folder.path(), 2, {1, 3});
  CHECK(steps(folder.path()) == std::vector<int64_t>{6, 5, 3, 1});
  point_link(folder / "latest", "step-00000003");
  prune_checkpoints(folder.path(), 1);
  CHECK(steps(folder.path()) == std::vector<int64_t>{6, 3});
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", "step-00000003", "step-00000006"});
  prune_checkpoints(folder / "absent", 1);
}

TEST_CASE("pruning removes nothing if the newest checkpoint is damaged") {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 3; ++step) save(folder.path(), step);
  write_file(folder / "step-00000003" / "state.json", "{\"step\": 4, \"seed\": 0}\n");
  CHECK_THAT(error_of(ExitCode::checkpoint, [&] { prune_checkpoints(folder.path(), 1); }),
             ContainsSubstring("step-00000003"));
  CHECK(steps(folder.path()) == std::vector<int64_t>{3, 2, 1});
}

TEST_CASE("only drafts of killed runs are removed") {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  for (const char* name :
       {".step-00000002.123.0badcafe", ".replaced.step-00000001", ".replaced.step-00000004", ".other", "step-x"}) {
    std::filesystem::create_directory(folder / name);
    write_file(folder / name / "a", "bytes");
  }
  std::filesystem::create_symlink("step-00000002", folder / ".latest.123.tmp");
  remove_drafts(folder.path());
  CHECK(names_in(folder.path()) ==
        std::vector<std::string>{".other", "latest", "step-00000001", "step-00000004", "step-x"});
  remove_drafts(folder / "absent");
}
