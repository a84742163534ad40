#include "data/files/found_files.h"

#include "bad_files.h"
#include "base/files/file_kind.h"
#include "data/dataset.h"
#include "data/files/splits.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <array>

using namespace trainopt;
using namespace trainopt::test;

namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 1> kTar = {".tar"};

/// A folder with empty files, and what is found in it.
struct Shards {
  explicit Shards(const std::vector<std::string>& names) {
    for (const auto& name : names) write_bytes(folder.path() / name, "");
  }
  std::string at(const std::string& name) const { return (folder.path() / name).string(); }
  FoundFiles find(const std::vector<std::string>& names, std::span<const std::string_view> endings = kTar) const {
    DataPaths paths;
    for (const auto& name : names) paths.all.push_back(at(name));
    return find_files(*local_data_files(), paths, endings);
  }
  /// Their names below the folder, with a space between.
  std::string found(const std::vector<std::string>& names) const {
    std::string text;
    for (const auto& file : find(names).files)
      text += (text.empty() ? "" : " ") + fs::path(file).lexically_relative(folder.path()).string();
    return text;
  }
  std::string refusal(const std::vector<std::string>& names, std::span<const std::string_view> endings = kTar) const {
    return data_error([&] { find(names, endings); });
  }

  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("paths are files, folders, patterns and names in braces") {
  const Shards shards({"train-000.tar", "train-001.tar", "train-002.TAR", "more/b.tar", "more/a.tar", "odd[1].tar",
                       "other/c.tar", "x{y}.tar"});
  CHECK(shards.found({"odd[1].tar", "x{y}.tar"}) == "odd[1].tar x{y}.tar");
  CHECK(shards.found({"train-001.tar"}) == "train-001.tar");
  CHECK(shards.found({"train-*.tar"}) == "train-000.tar train-001.tar");
  CHECK(shards.found({"train-*"}) == "train-000.tar train-001.tar train-002.TAR");
  CHECK(shards.found({"train-00[12].*"}) == "train-001.tar train-002.TAR");
  CHECK(shards.found({"more"}) == "more/a.tar more/b.tar");
  CHECK(shards.found({"more", "train-00?.tar"}) == "more/a.tar more/b.tar train-000.tar train-001.tar");
  CHECK(shards.found({"?o?e", "oth*"}) == "more/a.tar more/b.tar other/c.tar");
  CHECK(shards.found({"train-{000..001}.tar"}) == "train-000.tar train-001.tar");
  CHECK(shards.found({"{other,more}/*.tar", "train-{000..000}.tar"}) ==
        "other/c.tar more/a.tar more/b.tar train-000.tar");
}

TEST_CASE("what is in a folder and is not read is counted") {
  const Shards shards({"a.tar", "b.TAR", "a.tar.index", "README.md", "x.tar.gz", "y.tar.gz", "._a.tar", ".git/x",
                       "old/c.tar", ".c.tar"});
  CHECK(shards.find({"[ab].*"}).files.size() == 2);  // without the index that this program wrote
  const FoundFiles found = shards.find({""});
  CHECK(found.files.size() == 2);
  CHECK(found.left_out.text() ==
        "2 .gz files (x.tar.gz, ...), 1 .md file (README.md), 1 folder (old), 1 hidden file (.c.tar), 1 hidden folder "
        "(.git), 1 macOS ._ file (._a.tar)");
  CHECK(left_out_from(found.left_out.json()).text() == found.left_out.text());
}

TEST_CASE("endings that are numbers, and names that cannot be printed, do not fill the line") {
  LeftOut left_out;
  for (int i = 0; i < 100'000; ++i) left_out.add_file(fmt::format("frame.{:06}", i));
  left_out.add_file("a\nb.txt");
  left_out.add_file("0.mp4");
  CHECK(left_out.text() == "100,000 other files (frame.000000, ...), 1 .mp4 file (0.mp4), 1 .txt file (a?b.txt)");
}

TEST_CASE("several files that cannot be read are counted") {
  const Shards shards({"a.tar", "b.tar", "c.tar"});
  CHECK_THAT(data_error([&] { open_tar(shards.at(""), {}); }),
             Catch::Matchers::StartsWith("the file is empty: ") &&
                 Catch::Matchers::EndsWith("/a.tar; 3 of 3 files cannot be read"));
}

TEST_CASE("paths that name nothing, too much or something else are refused in one sentence") {
  const Shards shards({"a.tar", "b.tar", "c.parquet", "none/x.gz", "below/data/a.tar", "below/data/b.tar", "empty/.x"});
  CHECK_THAT(shards.refusal({"no.tar"}), ContainsSubstring("does not exist"));
  CHECK_THAT(shards.refusal({"no*.tar"}), Catch::Matchers::StartsWith("nothing fits the pattern: ") &&
                                              ContainsSubstring("; there are 3 folders (") &&
                                              ContainsSubstring("2 .tar files (a.tar, ...)"));
  CHECK_THAT(shards.refusal({"nowhere/*.tar"}), Catch::Matchers::StartsWith("nothing fits the pattern: "));
  constexpr std::array<std::string_view, 1> parquet = {".pack"};
  CHECK_THAT(shards.refusal({""}, parquet),
             ContainsSubstring("; data.dataset: tar reads *.tar files; data.dataset: parquet"));
  CHECK_THAT(shards.refusal({"{0000..99999999}.tar"}), ContainsSubstring("braces of more than 1,000,000 names"));
  CHECK_THAT(shards.refusal({"{0..9999}{0..9999}.tar"}), ContainsSubstring("braces of more than 1,000,000 names"));
  CHECK_THAT(shards.refusal({"{3..1}.tar"}), ContainsSubstring("such as {0000..0146}, or names: {3..1}"));
  fs::create_symlink("loop.tar", shards.folder.path() / "loop.tar");
  CHECK_THAT(shards.refusal({"loop.tar"}), ContainsSubstring("a link leads to itself: "));
  fs::remove(shards.folder.path() / "loop.tar");
  CHECK_THAT(data_error([] { require_path("gs://b/x.tar"); }), ContainsSubstring("only s3:// is read"));
  CHECK_THAT(shards.refusal({"{a,b,d,e}.tar"}), ContainsSubstring("2 of 4 files do not exist: ") &&
                                                    ContainsSubstring("/d.tar, ") &&
                                                    Catch::Matchers::EndsWith("/e.tar"));
  CHECK_THAT(shards.refusal({"*.*"}), ContainsSubstring("must fit *.tar files only, and it fits 1 other: "));
  CHECK_THAT(shards.refusal({"[ab]*"}), ContainsSubstring("fits files and folders, such as "));
  CHECK_THAT(shards.refusal({"none"}),
             ContainsSubstring("contains no *.tar files: ") && Catch::Matchers::EndsWith("; it has 1 .gz file (x.gz)"));
  CHECK_THAT(shards.refusal({"below"}), Catch::Matchers::EndsWith("/below/data has 2"));
  CHECK_THAT(shards.refusal({"a.tar", "b.tar", "./a.tar"}), ContainsSubstring("a file is named twice: "));
  CHECK_THAT(shards.refusal({"a.tar", "[ab].tar", "b.tar"}), ContainsSubstring("2 files are named twice: "));
  constexpr std::array<std::string_view, 2> either = {".tar", ".parquet"};
  CHECK_THAT(shards.refusal({""}, either), ContainsSubstring("two kinds of files are there"));
  CHECK_THAT(data_error([] {
               DataPaths(std::vector<std::string>{"a", "b"}).only("cifar10");
             }),
             ContainsSubstring("cifar10 reads one file or folder, not several: a, b"));
}

TEST_CASE("training files beside others are refused with what to write") {
  const auto splits = [](std::vector<std::string> names) {
    const auto found = splits_in("d", names);
    return found ? found->training + " " + found->evaluation : "none";
  };
  CHECK(splits({"train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "test-00000-of-00001.parquet"}) ==
        "d/train-*-of-00002.parquet d/test-00000-of-00001.parquet");
  CHECK(splits({"fineweb_train_000001.bin", "fineweb_train_000002.bin", "fineweb_val_000000.bin"}) ==
        "d/fineweb_train_*.bin d/fineweb_val_000000.bin");
  CHECK(splits({"train.bin", "val.bin", "test.bin"}) == "d/train.bin d/val.bin");
  CHECK(splits({"imagenet-train-0001.tar", "imagenet-train-0012.tar", "imagenet-validation-00.tar",
                "imagenet-validation-01.tar"}) == "d/imagenet-train-*.tar d/imagenet-validation-*.tar");
  CHECK(splits({"train/", "val/", "test/"}) == "d/train d/val");
  CHECK(splits({"TRAIN_a.tar", "Dev_a.tar"}) == "d/TRAIN_a.tar d/Dev_a.tar");
  CHECK(splits({"train2017/", "val2017/"}) == "d/train2017 d/val2017");
  CHECK(splits({"a.tar", "train_b.tar", "test_c.tar"}) == "d/train_b.tar d/test_c.tar");
  CHECK(splits({"trainval-0.tar", "test-0.tar"}) == "d/trainval-0.tar d/test-0.tar");
  CHECK(splits({"en_train.tar", "de-train-x.tar", "en_val.tar"}) ==
        "[\"d/en_train.tar\",\"d/de-train-x.tar\"] d/en_val.tar");
  // Not by a part of a word, and not where one name has several.
  for (const auto& names : {std::vector<std::string>{"trained.tar", "latest.tar"},
                            {"train.tar", "contest.tar"},
                            {"val.tar", "test.tar"},
                            {"train_test_split_1.tar", "train_val_2.tar"},
                            {"a.tar", "b.tar"}})
    CHECK(splits(names) == "none");

  const auto typed = [&](const std::string& folder) {
    return words_for(*splits_in(folder, {"train-0.tar", "val-0.tar"}));
  };
  CHECK(typed("d") == "data.path=d/train-0.tar evaluation.path=d/val-0.tar");
  CHECK(typed("a b") == "'data.path=a b/train-0.tar' 'evaluation.path=a b/val-0.tar'");
  CHECK_THAT(typed("it's"), Catch::Matchers::StartsWith(R"('data.path="it'\''s/train-0.tar"' )"));
  CHECK_THAT(typed("b: c"), Catch::Matchers::StartsWith(R"('data.path="b: c/train-0.tar"' )"));
  CHECK(splits_in("w[1]", {"train-0.tar", "train-1.tar", "val-0.tar"})->training == "w[[]1]/train-*.tar");
  const Shards shards({"train-0.tar", "train-1.tar", "val-0.tar", "val-1.tar"});
  const std::string said =
      "'data.path=" + shards.at("train-*.tar") + "' 'evaluation.path=" + shards.at("val-*.tar") + "'";
  CHECK_THAT(shards.refusal({""}), Catch::Matchers::EndsWith(said));
  CHECK_THAT(shards.refusal({"*.tar"}), Catch::Matchers::EndsWith(said));
  CHECK(shards.found({"train-*.tar"}) == "train-0.tar train-1.tar");
  CHECK(shards.found({"train-*.tar", "val-*.tar"}) == "train-0.tar train-1.tar val-0.tar val-1.tar");  // as asked
}

TEST_CASE("files of other kinds are recognised by their first bytes") {
  const auto kind = [](std::string_view start, size_t least = 2) { return std::string(what_it_is(start, least)); };
  CHECK_THAT(kind("version https://git-lfs.github.com/spec/v1\noid sha256:"),
             Catch::Matchers::StartsWith("a Git LFS pointer"));
  CHECK_THAT(kind("\n<!DOCTYPE HTML><html>"), Catch::Matchers::StartsWith("a web page"));
  CHECK_THAT(kind("PK\x03\x04"), Catch::Matchers::StartsWith("a zip archive"));
  CHECK(kind("BM") == "a BMP image");
  CHECK(kind("BM", 4) == "");
  CHECK(kind("") == "");
  CHECK(kind("any text") == "");
  std::string tar(512, '\0');
  tar.replace(0, 4, "BMW/");
  tar.replace(257, 5, "ustar");
  CHECK_THAT(kind(tar), Catch::Matchers::StartsWith("a tar file"));
}
