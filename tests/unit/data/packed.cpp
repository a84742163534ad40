// Tests packed files: what is packed loads as before, whatever form it had, and damage is found and named.
#include "base/error.h"
#include "base/files/files.h"
#include "data/dataset.h"
#include "data/formats/packed/packed_file.h"
#include "data/image/png.h"
#include "data/pack.h"
#include "support/catch.h"
#include "support/file_faults.h"
#include "support/temporary_folder.h"

#include <cstring>
#include <functional>

using namespace trainopt;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kImages = 7;

void no_report(const PackProgress&) {}

/// Two classes of PNG files, of kImages sizes.
fs::path image_folder(const fs::path& folder) {
  for (int64_t i = 0; i < kImages; ++i) {
    ImageU8 image;
    image.set_size({10 + i, 12});
    for (int64_t y = 0; y < image.size().height; ++y)
      for (int64_t x = 0; x < 36; ++x) image.row(y)[x] = static_cast<uint8_t>(20 * i + 5 * y + x);
    const fs::path of_class = folder / (i < 3 ? "cat" : "dog");
    create_folders(of_class);
    const auto file = encode_png(image.view());
    write_file(of_class / fmt::format("{}.png", i), {reinterpret_cast<const char*>(file.data()), file.size()});
  }
  return folder;
}

std::vector<uint8_t> load_transformed(const ImageDataset& images, int64_t sample,
                                      const std::vector<TransformConfig>& transforms) {
  LoadScratch scratch;
  const Pipeline pipeline(transforms);
  const ImageSize size = pipeline.output_size(images.size_of(sample, scratch)).value();
  std::vector<uint8_t> pixels(static_cast<size_t>(size.height * size.width * 3));
  images.load(sample, 0, pipeline, {PixelFormat::u8_hwc, pixels.data(), size.height, size.width}, scratch);
  return pixels;
}

void check_same_images(const ImageDataset& packed, const ImageDataset& images,
                       const std::vector<TransformConfig>& transforms = {}) {
  REQUIRE(packed.size() == images.size());
  CHECK(packed.num_classes() == images.num_classes());
  CHECK(packed.class_names() == images.class_names());
  for (int64_t sample = 0; sample < images.size(); ++sample) {
    CHECK(packed.label(sample) == images.label(sample));
    CHECK(load_transformed(packed, sample, {}) == load_transformed(images, sample, transforms));
  }
}

template <class F>
std::string refusal_of(F f, ExitCode code = ExitCode::data) {
  try {
    f();
  } catch (const UserError& error) {
    CHECK(error.code() == code);
    return error.what();
  } catch (const BadSample& bad) {
    return bad.what();
  }
  return "no error";
}

std::string bytes_of(const fs::path& path) { return read_file(path, ExitCode::data); }

PackTrailer trailer_of(const std::string& bytes) {
  PackTrailer trailer;
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof(trailer), sizeof(trailer));
  return trailer;
}

/// The file with this change to its trailer, whose checksum fits again.
void change_trailer(const fs::path& path, const std::function<void(PackTrailer&)>& change) {
  std::string bytes = bytes_of(path);
  PackTrailer trailer = trailer_of(bytes);
  change(trailer);
  trailer.checksum = checksum_of(trailer);
  std::memcpy(bytes.data() + bytes.size() - sizeof(trailer), &trailer, sizeof(trailer));
  write_file(path, bytes);
}

}  // namespace

TEST_CASE("packed images are those that were packed") {
  const TemporaryFolder folder;
  const auto images = open_images(image_folder(folder.path() / "images").string());
  const fs::path out = folder.path() / "out.pack";
  std::vector<int64_t> reported;
  SECTION("as files") {
    pack(*images, out, {}, [&](const PackProgress& progress) { reported.push_back(progress.images); });
    const auto packed = open_images(out.string());
    CHECK_FALSE(packed->uniform_size());
    check_same_images(*packed, *images);
    LoadScratch scratch, other;
    const auto file = packed->file_of(2, scratch), original = images->file_of(2, other);
    CHECK(std::equal(file.begin(), file.end(), original.begin(), original.end()));
    CHECK(reported == std::vector<int64_t>{kImages});
  }
  SECTION("as pixels, resized as torchvision's Resize and CenterCrop") {
    pack(*images, out, {.resize = 8}, no_report);
    const auto packed = open_images(out.string());
    CHECK(packed->uniform_size() == ImageSize{8, 8});
    check_same_images(*packed, *images, {ResizeConfig{.shorter_side = 8}, CenterCropConfig{8, 8}});
    LoadScratch scratch;
    CHECK(packed->file_of(2, scratch).empty());
    CHECK(packed->size_of(2, scratch) == ImageSize{8, 8});
    // Packed once more, smaller: images of one size stay pixels.
    pack(*packed, folder.path() / "again.pack", {}, no_report);
    check_same_images(*open_images((folder.path() / "again.pack").string()), *packed);
  }
  SECTION("images in memory, without names of classes") {
    const auto fake = make_fake_cifar10(300, 3);
    CHECK(pack(*fake, out, {}, no_report).images == 300);
    check_same_images(*open_images(out.string()), *fake);
  }
}

TEST_CASE("several files hold each image once, and a second call keeps those that are complete") {
  const TemporaryFolder folder;
  const auto images = open_images(image_folder(folder.path() / "images").string());
  const fs::path out = folder.path() / "out";
  const PackOptions options{.resize = 8, .shards = 3};
  CHECK(pack(*images, out, options, no_report).shards_found == 0);
  pack(*images, folder.path() / "one.pack", {.resize = 8}, no_report);
  const auto packed = open_images(out.string());
  check_same_images(*packed, *open_images((folder.path() / "one.pack").string()));
  CHECK_THAT(packed->name_of(kImages - 1), ContainsSubstring("00002-of-00003.pack, image 2"));
  check_same_images(*packed, *open_packed((out / "*-of-00003.pack").string(), {}));
  const auto shard = [&](int number) { return (out / fmt::format("0000{}-of-00003.pack", number)).string(); };
  check_same_images(*packed, *open_packed(DataPaths(std::vector{shard(2), shard(0), shard(1)}), {}));

  const fs::path middle = out / "00001-of-00003.pack";
  const std::string before = bytes_of(middle);
  remove_file(middle);
  CHECK_THAT(refusal_of([&] { open_images(out.string()); }), ContainsSubstring("has 3 files, and number 1 is missing"));
  const PackProgress again = pack(*images, out, options, no_report);
  CHECK(again.shards_found == 2);
  CHECK(again.images == kImages);
  CHECK(bytes_of(middle) == before);

  CHECK_THAT(refusal_of([&] { pack(*images, out, {.resize = 9, .shards = 3}, no_report); }),
             ContainsSubstring("packed from other images, or with other options"));
  remove_file(out / "00002-of-00003.pack");
  CHECK_THAT(refusal_of([&] { open_images(out.string()); }), ContainsSubstring("has 3 files, and number 2 is missing"));
  fs::copy_file(middle, out / "00009.pack");
  CHECK_THAT(refusal_of([&] { open_images(out.string()); }), ContainsSubstring("number 1 is there twice"));
  fs::copy_file(folder.path() / "one.pack", out / "a.pack");
  CHECK_THAT(refusal_of([&] { open_images(out.string()); }), ContainsSubstring("are not of one packing"));
  CHECK_THAT(refusal_of([&] { pack(*images, out, {.shards = 8}, no_report); }, ExitCode::recipe),
             ContainsSubstring("than images: 8 and 7"));
}

TEST_CASE("files are not written beside those of another packing") {
  const TemporaryFolder folder;
  const auto images = open_images(image_folder(folder.path() / "images").string());
  const fs::path out = folder.path() / "out";
  for (const PackFormat format : {PackFormat::packed, PackFormat::tar}) {
    pack(*images, out, {.format = format, .shards = 2}, no_report);
    CHECK_THAT(refusal_of([&] { pack(*images, out, {.format = format, .shards = 3}, no_report); }),
               ContainsSubstring("a file of another packing") && ContainsSubstring("-of-00002"));
    CHECK(pack(*images, out, {.format = format, .shards = 2}, no_report).shards_found == 2);
  }
}

TEST_CASE("a packed file that loses its index while it is open is reported") {
  const TemporaryFolder folder;
  const auto fake = make_fake_cifar10(2000, 1);
  const fs::path out = folder.path() / "out.pack";
  pack(*fake, out, {}, no_report);
  const auto packed = open_packed(out.string(), {});
  fs::resize_file(out, 8192);  // the index is hundreds of pages away, so reading it there would end the process
  CHECK_THAT(refusal_of([&] { load_transformed(*packed, 1999, {}); }), ContainsSubstring("became shorter"));
}

TEST_CASE("whatever call fails while packing, no file is left that is not complete") {
  const TemporaryFolder folder;
  const auto images = open_images(image_folder(folder.path() / "images").string());
  const fs::path out = folder.path() / "out.pack";
  int64_t failures = 0;
  for (int64_t call = 1;; ++call) {
    FaultAt faults(call);
    bool failed = false;
    {
      const ScopedFileFaults installed(faults);
      try {
        pack(*images, out, {}, no_report);
      } catch (const UserError&) {
        failed = true;
      }
    }
    if (!failed) CHECK(fs::exists(out));
    if (fs::exists(out)) check_same_images(*open_images(out.string()), *images);
    remove_file(out);
    if (faults.calls() < call) break;
    failures += failed ? 1 : 0;
  }
  CHECK(failures > 5);
  CHECK(names_in_folder(folder.path(), ExitCode::data) == std::vector<std::string>{"images"});
}

TEST_CASE("a packed file that is damaged is refused, with the place") {
  const TemporaryFolder folder;
  const auto images = open_images(image_folder(folder.path() / "images").string());
  const fs::path out = folder.path() / "out.pack";
  pack(*images, out, {}, no_report);
  const std::string good = bytes_of(out);
  const PackTrailer trailer = trailer_of(good);
  const auto opening = [&] { return refusal_of([&] { open_packed(out.string(), {}); }); };
  SECTION("another file") {
    write_file(out, std::string(1000, 'x'));
    CHECK_THAT(opening(), ContainsSubstring("this is no packed file"));
    write_file(out, "x");
    CHECK_THAT(opening(), ContainsSubstring("1 byte: too few for a packed file"));
  }
  SECTION("cut anywhere") {
    for (const size_t bytes : {size_t{200}, good.size() / 2, good.size() - 1}) {
      write_file(out, good.substr(0, bytes));
      CHECK_THAT(opening(), ContainsSubstring("was cut: it does not end with a trailer"));
    }
  }
  SECTION("a later version") {
    change_trailer(out, [](PackTrailer& changed) { changed.version = 2; });
    CHECK_THAT(opening(), ContainsSubstring("version 2, and this program reads version 1"));
  }
  SECTION("any byte of trailer or index") {
    for (size_t at = static_cast<size_t>(trailer.entries_at); at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 4);
      write_file(out, bad);
      CHECK(opening() != "no error");
    }
  }
  SECTION("numbers that cannot be, with checksums that fit") {
    const std::vector<std::function<void(PackTrailer&)>> changes{
        [](PackTrailer& t) { t.images = INT64_MAX / 24; },
        [](PackTrailer& t) { t.images = 0; },
        [](PackTrailer& t) { t.entries_at = INT64_MIN; },
        [](PackTrailer& t) { t.names_bytes = INT64_MAX; },
        [](PackTrailer& t) { t.classes = 0; },
        [](PackTrailer& t) { t.shard = 1; },
        [](PackTrailer& t) { t.height = t.width = 3; },
        [](PackTrailer& t) { t.kind = static_cast<PackKind>(7); }};
    for (const auto& change : changes) {
      write_file(out, good);
      change_trailer(out, change);
      CHECK_THAT(opening(), ContainsSubstring("trailer") && ContainsSubstring("is damaged"));
    }
  }
  SECTION("a changed record is a bad sample, and the others are not") {
    std::string bad = good;
    bad[static_cast<size_t>(kPackStart)] = static_cast<char>(bad[static_cast<size_t>(kPackStart)] ^ 1);
    write_file(out, bad);
    const auto packed = open_packed(out.string(), {});
    CHECK_THAT(refusal_of([&] { load_transformed(*packed, 0, {}); }),
               ContainsSubstring("at byte 64 changed since they were packed"));
    CHECK(load_transformed(*packed, 1, {}) == load_transformed(*images, 1, {}));
    // Packing it again must not carry the damage on.
    CHECK_THAT(refusal_of([&] { pack(*packed, folder.path() / "again.pack", {}, no_report); }),
               ContainsSubstring("out.pack, image 0"));
  }
  SECTION("a file that becomes shorter while it is open") {
    const auto packed = open_packed(out.string(), {});
    fs::resize_file(out, 100);
    CHECK_THAT(refusal_of([&] { load_transformed(*packed, 0, {}); }), ContainsSubstring("became shorter"));
  }
}

TEST_CASE("packed evaluation data must have the training data's classes, and pixels are not decoded") {
  const TemporaryFolder folder;
  const auto images = open_images(image_folder(folder.path() / "images").string());
  const std::string out = (folder.path() / "out.pack").string();
  pack(*images, out, {.resize = 4}, no_report);
  CHECK(open_packed(out, {.training = images.get()})->size() == kImages);
  const auto fake = make_fake_cifar10(10, 1);
  CHECK_THAT(refusal_of([&] { open_packed(out, {.training = fake.get()}); }),
             ContainsSubstring("must be those of the training data"));
  CHECK_THAT(refusal_of([&] { open_packed(out, {.decoding = {.size = DecodeSize::reduced}}); }, ExitCode::recipe),
             ContainsSubstring("no effect on packed pixels"));
  CHECK_THAT(refusal_of([&] { open_packed((folder.path() / "none").string(), {}); }),
             ContainsSubstring("does not exist"));
}

TEST_CASE("the identity of packed data is that of its bytes") {
  const TemporaryFolder folder;
  const auto one = make_fake_cifar10(20, 1), other = make_fake_cifar10(20, 2);
  const auto identity = [&](const ImageDataset& images, const char* name) {
    pack(images, folder.path() / name, {}, no_report);
    return open_packed((folder.path() / name).string(), {})->identity();
  };
  CHECK(!first_difference(identity(*one, "a.pack"), identity(*one, "b.pack")));
  CHECK(first_difference(identity(*one, "c.pack"), identity(*other, "d.pack")).has_value());
}
