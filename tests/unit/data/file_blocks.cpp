// Tests that overwritten data has another identity: any block of a small data set, and of a large one those drawn.
#include "data/identity.h"

#include "base/files/files.h"
#include "data/dataset.h"
#include "data/formats/text/text_dataset.h"
#include "data/image/png.h"
#include "data/pack.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <set>

using namespace trainopt;
namespace fs = std::filesystem;

namespace {

/// Flips the bits of one byte, or of `bytes`.
void flip(const fs::path& path, int64_t offset, int64_t bytes = 1) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  std::string part(static_cast<size_t>(bytes), '\0');
  REQUIRE(::pread(fd, part.data(), part.size(), offset) == bytes);
  for (char& byte : part) byte = static_cast<char>(~byte);
  REQUIRE(::pwrite(fd, part.data(), part.size(), offset) == bytes);
  ::close(fd);
}

/// Sets the time of the last change.
void set_time(const fs::path& path, time_t seconds) {
  const struct timespec times[] = {{seconds, 0}, {seconds, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

/// Two classes of three images of 40 × 40 pixels, whose files are one or two blocks.
std::shared_ptr<const ImageDataset> noisy_images(const fs::path& folder) {
  const auto fake = make_fake_cifar10(6, 1);
  LoadScratch scratch;
  for (int64_t i = 0; i < fake->size(); ++i) {
    ImageU8 image;
    image.set_size({40, 40});
    const Pipeline pipeline({ResizeConfig{.shorter_side = 40}});
    fake->load(i, 0, pipeline, {PixelFormat::u8_hwc, image.row(0), 40, 40}, scratch);
    create_folders(folder / (i < 3 ? "cat" : "dog"));
    const auto file = encode_png(image.view());
    write_file(folder / (i < 3 ? "cat" : "dog") / fmt::format("{}.png", i),
               {reinterpret_cast<const char*>(file.data()), file.size()});
  }
  return open_image_folder(folder.string(), {});
}

struct OnDisk {
  const char* kind;
  std::vector<fs::path> files;
  std::function<DataIdentity()> identity;
};

/// A small data set of each kind whose content does not stand for all bytes.
std::vector<OnDisk> small_data_sets(const fs::path& folder) {
  const auto images = noisy_images(folder / "images");
  const auto packed = [&](const char* name, PackFormat format) {
    pack(*images, folder / name, {.format = format}, [](const PackProgress&) {});
    return folder / name;
  };
  std::vector<fs::path> of_images;
  for (int64_t i = 0; i < images->size(); ++i) of_images.emplace_back(images->name_of(i));
  const std::string tokens(300'000, '\1');
  const uint64_t ends[] = {100, 150'000};
  create_folders(folder / "texts");
  for (const char* name : {"tokens.bin", "documents.bin", "texts/a.txt", "texts/b.txt"})
    write_file(folder / name, tokens);
  write_file(folder / "documents.ends", {reinterpret_cast<const char*>(ends), sizeof(ends)});
  const fs::path tar = packed("all.tar", PackFormat::tar), parquet = packed("all.parquet", PackFormat::parquet),
                 pack = packed("all.pack", PackFormat::packed);
  const TextOptions text{.context = 8, .vocabulary = 1 << 16};
  return {{"image_folder", of_images, [=] { return open_image_folder((folder / "images").string(), {})->identity(); }},
          {"packed", {pack}, [=] { return open_packed(pack.string(), {})->identity(); }},
          {"tar", {tar}, [=] { return open_tar(tar.string(), {})->identity(); }},
          {"parquet", {parquet}, [=] { return open_parquet(parquet.string(), {})->identity(); }},
          {"tokens",
           {folder / "tokens.bin"},
           [=] { return open_token_windows((folder / "tokens.bin").string(), text)->identity(); }},
          {"documents",
           {folder / "documents.bin"},
           [=] { return open_documents((folder / "documents.bin").string(), text)->identity(); }},
          {"documents", {folder / "texts/a.txt", folder / "texts/b.txt"}, [=] {
             return open_documents((folder / "texts").string(), text)->identity();
           }}};
}

/// Image folders of so many images are never asked for all sizes.
constexpr int kManyImages = 10'007;

}  // namespace

TEST_CASE("D20: a changed byte in any block of a small data set is found, whatever its kind") {
  const MemoryFolder folder;
  for (const auto& [kind, files, identity] : small_data_sets(folder.path())) {
    INFO(kind);
    const DataIdentity before = identity();
    CHECK(before.kind == kind);
    CHECK(!first_difference(before, identity()));
    for (const auto& file : files) {
      const auto bytes = static_cast<int64_t>(fs::file_size(file));
      // Headers are checked when the file is opened; here it is about what follows.
      for (int64_t offset = std::min<int64_t>(bytes / 2, 2000); offset < bytes; offset += kBlockBytes) {
        flip(file, offset);
        std::string difference;
        try {
          difference = first_difference(before, identity()).value_or("none");
        } catch (const UserError& damaged) {  // of an index
          difference = damaged.what();
        }
        CHECK(difference != "none");
        flip(file, offset);
      }
    }
    CHECK(!first_difference(before, identity()));
  }
}

TEST_CASE("D20: images of equal size that were exchanged are found") {
  const TemporaryFolder folder;
  const auto image = [&](const char* name) { return folder / "images" / name; };
  for (const char* name : {"a/1.png", "a/2.png", "b/3.png"}) {
    create_folders(image(name).parent_path());
    write_file(image(name), std::string(100, name[2]));
  }
  const auto identity = [&] { return open_image_folder((folder / "images").string(), {})->identity(); };
  const DataIdentity before = identity();
  fs::rename(image("a/1.png"), image("c.png"));
  fs::rename(image("b/3.png"), image("a/1.png"));
  fs::rename(image("c.png"), image("b/3.png"));
  CHECK_THAT(first_difference(before, identity()).value_or(""), ContainsSubstring("bytes in its files "));
}

TEST_CASE("D20: images that were overwritten are not packed into the rest of an earlier packing") {
  const TemporaryFolder folder;
  const fs::path out = folder / "packed";
  const auto again = [&](const ImageDataset& images) {
    return pack(images, out, {.shards = 2}, [](const PackProgress&) {}).shards_found;
  };
  const auto before = noisy_images(folder / "images");
  CHECK(again(*before) == 0);
  CHECK(again(*noisy_images(folder / "images")) == 2);
  fs::remove(out / "00001-of-00002.pack");
  // Of the same size, and also a PNG file.
  flip(before->name_of(0), static_cast<int64_t>(fs::file_size(before->name_of(0))) - 1);
  CHECK_THROWS_WITH(again(*open_image_folder((folder / "images").string(), {})),
                    ContainsSubstring("packed from other images"));
}

TEST_CASE("D20: a data set that was copied has other versions, and is the same") {
  const MemoryFolder folder;
  for (const auto& [kind, files, identity] : small_data_sets(folder.path())) {
    INFO(kind);
    set_time(files.back(), 1'000'000'000);
    const DataIdentity before = identity();
    CHECK(!has_other_versions(before, identity()));
    set_time(files.back(), 1'000'000'001);
    CHECK(has_other_versions(before, identity()));
    CHECK(!first_difference(before, identity()));
  }
}

TEST_CASE("blocks and versions that one of two identities lacks are not compared") {
  const DataIdentity old{"tokens", 1, 2, "x"};
  const DataIdentity one{"tokens", 1, 2, "x", "b", "v"}, other{"tokens", 1, 2, "x", "c", "w"};
  CHECK(first_difference(one, other) == "bytes in its files b → c");
  CHECK(has_other_versions(one, other));
  CHECK(!first_difference(old, one));
  CHECK(!first_difference(one, old));
  CHECK(!has_other_versions(old, one));
  CHECK(!has_other_versions(one, old));
}

TEST_CASE("an identity is that of the files when it was first asked for") {
  const TemporaryFolder folder;
  const fs::path path = folder / "a.bin";
  write_file(path, std::string(300'000, '\1'));
  const auto tokens = open_token_windows(path.string(), {.context = 8, .vocabulary = 1 << 16});
  const DataIdentity before = tokens->identity();
  flip(path, 150'000);
  CHECK(!first_difference(before, tokens->identity()));
}

TEST_CASE("all blocks are drawn if there are few, and as many as promised among many") {
  const auto drawn = [](const std::vector<BlockFile>& files, uint64_t key) {
    std::map<std::string, std::set<int64_t>> places;
    int64_t count = 0;
    for (const auto& [path, offset] : draw_blocks(files, key)) {
      CHECK(offset % kBlockBytes == 0);
      count += places[path].insert(offset / kBlockBytes).second ? 1 : 0;
    }
    return std::pair(places, count);
  };
  CHECK(draw_blocks({}, 1).empty());
  CHECK(draw_blocks({{"empty", 0}}, 1).empty());
  const auto [few, count] = drawn({{"a", 1}, {"empty", 0}, {"b", 2 * kBlockBytes}, {"c", kBlockBytes + 1}}, 1);
  CHECK(count == 5);
  CHECK((few == std::map<std::string, std::set<int64_t>>{{"a", {0}}, {"b", {0, 1}}, {"c", {0, 1}}}));
  CHECK(drawn({{"a", kDrawnBlocks * kBlockBytes}}, 1).second == kDrawnBlocks);
  const std::vector<BlockFile> many{
      {"a", 1000 * kBlockBytes}, {"b", 5000 * kBlockBytes - 1}, {"c", 4000 * kBlockBytes}};
  const auto [places, all] = drawn(many, 1);
  CHECK(all == kDrawnBlocks);
  CHECK(places.at("a").size() > 50);
  CHECK(places.at("b").size() > 400);
  CHECK(*places.at("b").rbegin() < 5000);
  CHECK(places.at("c").size() > 300);
  CHECK((drawn(many, 1).first == places));
  CHECK((drawn(many, 2).first != places));
}

TEST_CASE("D20: of a large data set, a change of a hundredth of the blocks is found") {
  const MemoryFolder folder;
  const fs::path path = folder / "a.bin";
  constexpr int64_t kBlocks = 20'000;  // zeros, which take no memory
  write_file(path, "");
  fs::resize_file(path, kBlocks * kBlockBytes);
  const auto identity = [&] { return open_token_windows(path.string(), {.context = 8, .vocabulary = 9})->identity(); };
  const DataIdentity before = identity();
  for (int64_t block = 57; block < kBlocks - 100; block += 100) flip(path, block * kBlockBytes, kBlockBytes);
  CHECK_THAT(first_difference(before, identity()).value_or(""), ContainsSubstring("bytes in its files "));
}

TEST_CASE("D20: of a large image folder, a change of a hundredth of the images is found") {
  const MemoryFolder folder;
  const auto path = [&](int i) { return folder / fmt::format("a/{:05}.png", i); };
  create_folders(folder / "a");
  const std::string content(100, '\1');
  for (int i = 0; i < kManyImages; ++i) {
    const int fd = ::open(path(i).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);  // without the fsync of write_file()
    REQUIRE(::write(fd, content.data(), content.size()) == std::ssize(content));
    ::close(fd);
  }
  const auto identity = [&] { return open_image_folder(folder.path().string(), {})->identity(); };
  const DataIdentity before = identity();
  CHECK(!first_difference(before, identity()));
  for (int i = 57; i < kManyImages; i += 100) flip(path(i), 0, std::ssize(content));
  CHECK_THAT(first_difference(before, identity()).value_or(""), ContainsSubstring("bytes in its files "));
}
