// Tests tar files: what follows WebDataset's convention is read, and what does not is refused with the place. Real tar
// files are in tests/cli/test_tar.py.
#include "bad_files.h"
#include "base/error.h"
#include "base/files/files.h"
#include "data/dataset.h"
#include "data/formats/tar/tar_index.h"
#include "data/formats/tar/tar_members.h"
#include "data/pack.h"
#include "storage/memory_cache.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace trainopt;

namespace {

const std::string kEnd(2 * kTarBlock, '\0');

std::string member(const std::string& name, const std::string& content) {
  const auto bytes = static_cast<int64_t>(content.size());
  return tar_header(name, bytes) + content + tar_padding(bytes);
}

/// The header with this change, and the checksum that fits it.
std::string changed(std::string header, const std::function<void(std::string&)>& change) {
  change(header);
  header.replace(148, 8, std::string(8, ' '));
  int64_t sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  header.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header;
}

std::string of_type(char type, const std::string& name = "a", int64_t bytes = 0) {
  return changed(tar_header(name, bytes), [=](std::string& header) { header[156] = type; });
}

std::vector<TarMember> members_of(const std::string& tar) {
  std::vector<TarMember> members;
  read_tar(tar, "x.tar", [&](const TarMember& found) { members.push_back(found); });
  return members;
}

std::string refusal(const std::function<void()>& work) { return test::data_error(work); }
std::string refusal(const std::string& tar) {
  return refusal([&] { tar_index(tar, "x.tar"); });
}

std::string sample(const std::string& key, const std::string& label = "1") {
  return member(key + ".jpg", "image of " + key) + member(key + ".cls", label);
}

/// A file that is not mapped.
class FarTar : public DataFile {
 public:
  explicit FarTar(const std::string& content)
      : DataFile("s3://x/x.tar", static_cast<int64_t>(content.size()), "1"), content_(content) {}
  std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const override {
    scratch.assign(content_.begin() + offset, content_.begin() + offset + bytes);
    return scratch;
  }

 private:
  std::string content_;
};

}  // namespace

TEST_CASE("samples are members of one name, with image and label in any order") {
  const std::string tar = member("d/a.b.txt", "ignored") + member("d/a.CLS", "3\n") + member("d/a.seg.png", "ignored") +
                          member("d/a.JPEG", "image") + sample("b") + kEnd;
  const auto samples = tar_index(tar, "x.tar").samples;
  REQUIRE(samples.size() == 2);
  CHECK(samples[0].name == "d/a.JPEG");
  CHECK(tar.substr(static_cast<size_t>(samples[0].offset), static_cast<size_t>(samples[0].bytes)) == "image");
  CHECK(samples[0].label == 3);
  CHECK(samples[1].name == "b.jpg");
  // A name that begins with a dot is no sample's.
  CHECK(tar_index(member(".DS_Store", "") + member("d/.jpg", "x") + sample("a") + kEnd, "x.tar").samples.size() == 1);
  CHECK(samples[1].label == 1);
}

TEST_CASE("long names, large sizes and comments are read in each of tar's forms") {
  const std::string longer(150, 'n'), content = "0123456789";
  CHECK(members_of(of_type('L', "././@LongLink", 151) + longer + std::string(512 - 150, '\0') + member("cut", content) +
                   kEnd)[0]
            .name == longer);
  const auto pax = [&](const std::string& records) {
    const auto bytes = static_cast<int64_t>(records.size());
    return of_type('x', "pax", bytes) + records + tar_padding(bytes);
  };
  CHECK(members_of(pax("12 path=abc\n") + member("cut", content) + member("next", "") + kEnd)[0].name == "abc");
  CHECK(members_of(pax("12 path=abc\n") + member("cut", content) + member("next", "") + kEnd)[1].name == "next");
  CHECK(members_of(pax("10 size=3\n") + member("cut", content) + kEnd)[0].bytes == 3);
  const std::string prefixed =
      changed(tar_header("name", 0), [](std::string& header) { header.replace(345, 3, "dir"); });
  CHECK(members_of(prefixed + kEnd)[0].name == "dir/name");
  const std::string binary = changed(tar_header("a", 0), [](std::string& header) {
    header.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x0a", 12));
  });
  CHECK(members_of(binary + content + tar_padding(10) + kEnd)[0].bytes == 10);
  CHECK(read_tar(tar_comment("hello") + kEnd, "x.tar", [](const TarMember&) {}) == "hello");
  CHECK(members_of(of_type('5', "folder/") + member("a", content) + kEnd).size() == 1);
}

TEST_CASE("tar files that were put together are read as one") {
  // GNU tar fills its last record of 20 blocks with empty ones.
  for (const size_t empty : {1, 2, 3, 20}) {
    const std::string between(empty * kTarBlock, '\0');
    const auto samples = tar_index(sample("a", "0") + between + sample("a", "1") + sample("b") + kEnd, "x.tar").samples;
    REQUIRE(samples.size() == 3);
    CHECK((samples[0].name == "a.jpg" && samples[0].label == 0 && samples[1].name == "a.jpg" && samples[1].label == 1));
  }
  CHECK_THAT(refusal(sample("a") + kEnd + sample("b") + std::string(kTarBlock, '\0')), ContainsSubstring("was cut"));
  CHECK_THAT(refusal(sample("a") + std::string(kTarBlock, '\0') + std::string(2 * kTarBlock, 'x')),
             ContainsSubstring("by a damaged header, or by none: at byte 2560 of x.tar"));
}

TEST_CASE("what is no sample in a tar file is counted") {
  const std::string old_folder = changed(tar_header("a/", 0), [](std::string& header) { header[156] = '\0'; });
  const auto index =
      tar_index(member("./._1.jpg", "Mac OS X") + old_folder + member("a/1.jpg", "x") + member("a/1.cls", " 3\n") +
                    member("README", "text") + member("a/._1.cls", "Mac OS X") + kEnd + std::string(700, 'x'),
                "x.tar");
  REQUIRE(index.samples.size() == 1);
  CHECK(index.samples[0].label == 3);
  CHECK(index.left_out.text() ==
        "2 macOS ._ files (./._1.jpg, ...), 1 extensionless file (README), 1 old-style folder (a/), 1 tar file's tail "
        "(x.tar, 700 bytes after its end at byte 6656)");
  CHECK_THAT(tar_index(sample("a") + kEnd + "tail", "x.tar").left_out.text(),
             ContainsSubstring("4 bytes after its end"));
  std::string damaged = sample("a") + kEnd + sample("b") + kEnd;
  damaged[3072] ^= 1;  // in the header of the second tar file
  CHECK_THAT(refusal(damaged), ContainsSubstring("followed by a damaged header"));
  const auto stored = parse_index(index_text(index, 9000, "1"), 9000, "1");
  REQUIRE(stored);
  CHECK(stored->left_out.text() == index.left_out.text());
}

TEST_CASE("a tar file that is damaged or holds anything but files is refused with the place") {
  const std::string good = sample("a") + kEnd;
  CHECK(refusal(good) == "no error");
  for (size_t bytes = 0; bytes < good.size(); bytes += 100)
    CHECK_THAT(refusal(good.substr(0, bytes)), ContainsSubstring("the tar file was cut"));
  std::string damaged = good;
  damaged[3] = 'x';
  CHECK_THAT(refusal(damaged), ContainsSubstring("a damaged tar header, or no tar file: at byte 0 of x.tar"));
  for (const char type : {'1', '2'}) CHECK_THAT(refusal(of_type(type) + kEnd), ContainsSubstring("a link"));
  for (const char type : {'3', '4', '6', 'M'})
    CHECK_THAT(refusal(of_type(type) + kEnd), ContainsSubstring("neither a file nor a directory"));
  CHECK_THAT(refusal(of_type('S') + kEnd), ContainsSubstring("a sparse file"));
  CHECK_THAT(refusal(sample("d/../../a") + kEnd), ContainsSubstring("`..`: at byte 0 of x.tar, member d/../../a.jpg"));
  CHECK_THAT(refusal(sample("/a") + kEnd), ContainsSubstring("from the root"));
  for (const std::string& size :
       {std::string("0000000000x\0", 12), std::string(12, '\xff'), std::string("\x80\x01\0\0\0\0\0\0\0\0\0\0", 12)})
    CHECK_THAT(refusal(changed(tar_header("a", 0), [&](std::string& header) { header.replace(124, 12, size); }) + kEnd),
               ContainsSubstring("size that is no number"));
  for (const std::string records : {"5 path=abc\n", "99 path=abc\n", "12 path_abc\n", "x", "13 size=-5000\n"}) {
    const auto bytes = static_cast<int64_t>(records.size());
    CHECK_THAT(refusal(of_type('x', "pax", bytes) + records + tar_padding(bytes) + good),
               ContainsSubstring("a damaged pax header"));
  }
  CHECK_THAT(refusal(of_type('x', "pax", 22) + "22 GNU.sparse.major=1\n" + tar_padding(22) + good),
             ContainsSubstring("a sparse file"));
}

TEST_CASE("samples that do not follow the convention are refused with the member") {
  CHECK_THAT(refusal(member("a.cls", "1") + sample("b") + kEnd),
             ContainsSubstring("no image (jpg, jpeg, png): member a.cls at byte 0 of x.tar"));
  CHECK_THAT(refusal(member("22.05.jpg", "x") + member("22.05.cls", "1") + kEnd),
             ContainsSubstring("no image (jpg, jpeg, png); it has 05.jpg, 05.cls, because an ending begins at a name's "
                               "first dot") &&
                 ContainsSubstring("member 22.05.jpg at byte 0 of x.tar"));
  CHECK_THAT(refusal(member("1.webp", "x") + member("1.cls", "1") + kEnd), ContainsSubstring("; it has webp: member"));
  CHECK_THAT(refusal(sample("b") + member("a.jpg", "x") + kEnd),
             ContainsSubstring("no label (cls): member a.jpg at byte 2048"));
  CHECK_THAT(refusal(member("a.png", "x") + sample("a") + kEnd), ContainsSubstring("two images: member a.jpg"));
  CHECK_THAT(refusal(sample("a") + member("a.cls", "1") + kEnd), ContainsSubstring("two labels: member a.cls"));
  CHECK_THAT(refusal(sample("a") + sample("b") + sample("a") + kEnd),
             ContainsSubstring("comes a second time: member a.jpg"));
  for (const char* label : {"-1", "x", "", "1.5", "1048576", "99999999999999999999", "1 2"})
    CHECK_THAT(refusal(sample("a", label) + kEnd),
               ContainsSubstring("a label must be a number from 0 to 1048575: member a.cls"));
}

TEST_CASE("an index is used only with the file that it was made of") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.tar";
  write_file(path, tar_comment("note") + sample("a") + sample("b", "2") + kEnd);
  const auto index_of = [&] { return stored_tar_index(*open_local_file(path)); };
  const TarIndex index = index_of();
  CHECK(index.samples.size() == 2);
  const std::string stored = folder.text("x.tar.index");
  const auto file = open_local_file(path);
  const auto parsed = parse_index(stored, file->size(), file->version());
  REQUIRE(parsed);
  CHECK((parsed->samples == index.samples));
  CHECK(parsed->comment == "note");
  CHECK_FALSE(parse_index(stored, file->size() + 1, file->version()));
  CHECK_FALSE(parse_index(stored, file->size(), file->version() + "1"));
  CHECK_FALSE(parse_index("", file->size(), file->version()));
  for (size_t at = 0; at < stored.size(); ++at) {
    std::string damaged = stored;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    CHECK_FALSE(parse_index(damaged, file->size(), file->version()));
  }
  // A stored index is believed: this one has a third sample, with a place that lies in the file.
  TarIndex three = index;
  three.samples.push_back({512, 5, 7, "c.jpg"});
  write_file(folder.path() / "x.tar.index", index_text(three, file->size(), file->version()));
  CHECK(index_of().samples.size() == 3);
  three.samples.back().offset = file->size();
  write_file(folder.path() / "x.tar.index", index_text(three, file->size(), file->version()));
  CHECK(index_of().samples.size() == 2);
  write_file(path, sample("c") + kEnd);
  CHECK(index_of().samples.size() == 1);
}

TEST_CASE("reading the headers of a remote tar file leaves a cache in memory to the images") {
  const std::string tar = sample("a") + sample("b") + kEnd;
  MemoryCache cache(std::ssize(tar));
  const auto file = cache.through(std::make_unique<FarTar>(tar));
  const auto samples = stored_tar_index(*file).samples;
  REQUIRE(samples.size() == 2);
  CHECK(cache.missed_bytes() == 0);
  std::vector<uint8_t> scratch;
  for (int turn = 0; turn < 3; ++turn)
    for (const auto& each : samples) file->read(each.offset, each.bytes, scratch);
  CHECK(cache.missed_bytes() == samples[0].bytes + samples[1].bytes);
  CHECK(cache.hit_bytes() == 2 * cache.missed_bytes());
}

TEST_CASE("what is packed to tar files has the same images and labels") {
  const TemporaryFolder folder;
  const auto fake = make_fake_cifar10(11, 3);
  const PackOptions options{.format = PackFormat::tar, .shards = 2};
  const auto out = folder.path() / "out";
  CHECK(pack(*fake, out, options, [](const PackProgress&) {}).shards_found == 0);
  CHECK(pack(*fake, out, options, [](const PackProgress&) {}).shards_found == 2);
  const auto tar = open_images(out.string());
  REQUIRE(tar->size() == 11);
  CHECK_THAT(tar->name_of(10), ContainsSubstring("00001-of-00002.tar, member 00000010.png"));
  LoadScratch scratch;
  const auto pixels = [&](const ImageDataset& images, int64_t i) {
    std::vector<uint8_t> all(32 * 32 * 3);
    images.load(i, 0, Pipeline({}), {PixelFormat::u8_hwc, all.data(), 32, 32}, scratch);
    return all;
  };
  for (int64_t i = 0; i < 11; ++i) {
    CHECK(tar->label(i) == fake->label(i));
    CHECK(pixels(*tar, i) == pixels(*fake, i));
  }
  CHECK_THAT(refusal([&] { pack(*make_fake_cifar10(11, 4), out, options, [](const PackProgress&) {}); }),
             ContainsSubstring("packed from other images"));
}
