// Tests Parquet files: what is packed loads as before, and damage is found and named. tests/cli/test_parquet.py reads
// files that pyarrow wrote, and lets pyarrow read ours.
#include "base/error.h"
#include "base/files/files.h"
#include "data/dataset.h"
#include "data/formats/parquet/parquet_file.h"
#include "data/formats/parquet/parquet_library.h"
#include "data/image/png.h"
#include "data/pack.h"
#include "support/catch.h"
#include "support/file_faults.h"
#include "support/temporary_folder.h"

#include <cstring>
#include <set>
#include <tuple>

using namespace trainopt;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kPictures = 9;

fs::path pictures(const fs::path& folder) {
  for (int64_t i = 0; i < kPictures; ++i) {
    ImageU8 image;
    image.set_size({6 + i, 8});
    for (int64_t y = 0; y < image.size().height; ++y)
      for (int64_t x = 0; x < 24; ++x) image.row(y)[x] = static_cast<uint8_t>(25 * i + 3 * y + x);
    const fs::path of_class = folder / (i % 3 == 0 ? "cat" : "dog");
    create_folders(of_class);
    const auto file = encode_png(image.view());
    write_file(of_class / fmt::format("{}.png", i), {reinterpret_cast<const char*>(file.data()), file.size()});
  }
  return folder;
}

std::vector<uint8_t> pixels_of(const ImageDataset& images, int64_t sample) {
  LoadScratch scratch;
  const ImageSize size = images.size_of(sample, scratch);
  std::vector<uint8_t> pixels(static_cast<size_t>(size.height * size.width * 3));
  images.load(sample, 0, Pipeline({}), {PixelFormat::u8_hwc, pixels.data(), size.height, size.width}, scratch);
  return pixels;
}

/// What opening the file and reading all of it says.
std::string problem_with(const fs::path& path) {
  try {
    const auto images = open_parquet(path.string(), {});
    for (int64_t sample = 0; sample < images->size(); ++sample) pixels_of(*images, sample);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::data);
    return error.what();
  } catch (const BadSample& bad) {
    return bad.what();
  }
  return "";
}

/// A file that is not mapped, and notes what is read and announced of it.
class Far : public DataFile {
 public:
  using Range = std::pair<int64_t, int64_t>;
  explicit Far(std::string content)
      : DataFile("far.parquet", static_cast<int64_t>(content.size()), "1"), content_(std::move(content)) {}
  std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const override {
    read_.insert({offset, bytes});
    scratch.assign(content_.begin() + offset, content_.begin() + offset + bytes);
    return scratch;
  }
  void expect(int64_t offset, int64_t bytes) const override { announced_.insert({offset, bytes}); }
  int64_t reads_ahead() const override { return 8; }

  mutable std::set<Range> read_, announced_;

 private:
  std::string content_;
};

std::string file_of(const std::vector<std::vector<uint8_t>>& images) {
  std::string content;
  const auto output =
      create_parquet([&](const void* data, size_t bytes) { content.append(static_cast<const char*>(data), bytes); });
  for (const auto& image : images) output->add(image, 3);
  output->finish({});
  return content;
}

}  // namespace

TEST_CASE("what is announced of a row group is what is read of it") {
  std::vector<std::vector<uint8_t>> images;
  for (uint8_t i = 0; i < 5; ++i) images.emplace_back(size_t{3'000'000}, i);  // a row group and a half
  const auto far = std::make_shared<Far>(file_of(images));
  const ParquetFile file(far, {}, int64_t{1} << 30);
  REQUIRE(file.groups().size() == 2);
  far->read_.clear();
  far->announced_.clear();
  file.expect(0);
  const auto announced = far->announced_;
  CHECK(announced.size() == 4);  // 9 MB of images in pieces of 4 MiB, and the labels
  const RowGroup group = file.read(0);
  CHECK((far->read_ == announced));
  CHECK((far->announced_ == announced));
  REQUIRE(group.rows() == 3);
  CHECK(group.labels == std::vector<int32_t>{3, 3, 3});
  const auto image = group.image(2);
  CHECK(std::equal(image.begin(), image.end(), images[2].begin(), images[2].end()));
}

TEST_CASE("images load from Parquet as from their folder") {
  const TemporaryFolder folder;
  const auto images = open_image_folder(pictures(folder / "images").string(), {});
  const fs::path out = folder / "all.parquet";
  CHECK(pack(*images, out, {.format = PackFormat::parquet}, [](const PackProgress&) {}).shards_found == 0);
  CHECK(pack(*images, out, {.format = PackFormat::parquet}, [](const PackProgress&) {}).shards_found == 1);
  const auto read = open_images(out.string());
  REQUIRE(read->size() == kPictures);
  CHECK(read->class_names() == std::vector<std::string>{"cat", "dog"});
  CHECK(read->identity().kind == "parquet");
  REQUIRE(read->runs().size() == 1);
  std::multiset<std::tuple<std::vector<uint8_t>, int64_t, std::vector<uint8_t>>> of_parquet, of_folder;
  LoadScratch scratch;
  const auto add = [&](const ImageDataset& from, int64_t sample, auto& to) {
    const auto file = from.file_of(sample, scratch);
    to.insert({{file.begin(), file.end()}, from.label(sample), pixels_of(from, sample)});
  };
  for (int64_t sample = 0; sample < kPictures; ++sample)
    add(*read, sample, of_parquet), add(*images, sample, of_folder);
  CHECK((of_parquet == of_folder));
}

TEST_CASE("a changed byte of a Parquet file is found or changes nothing, but in the footer") {
  const TemporaryFolder folder;
  const auto images = open_image_folder(pictures(folder / "images").string(), {});
  const fs::path good = folder / "good.parquet", bad = folder / "bad.parquet";
  pack(*images, good, {.format = PackFormat::parquet}, [](const PackProgress&) {});
  const std::string bytes = read_file(good, ExitCode::data);
  const auto unchanged = open_parquet(good.string(), {});
  uint32_t footer = 0;
  std::memcpy(&footer, bytes.data() + bytes.size() - 8, sizeof(footer));
  footer += 8;
  int64_t found = 0;
  for (size_t at = 0; at < bytes.size(); at += 7) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    write_file(bad, changed);
    const std::string problem = problem_with(bad);
    if (!problem.empty()) {
      ++found;
      continue;
    }
    const auto read = open_parquet(bad.string(), {});
    if (at > bytes.size() - footer) continue;  // has no checksum
    REQUIRE(read->size() == kPictures);
    for (int64_t sample = 0; sample < kPictures; ++sample) CHECK(read->label(sample) == unchanged->label(sample));
    for (int64_t sample = 0; sample < kPictures; ++sample)
      CHECK(pixels_of(*read, sample) == pixels_of(*unchanged, sample));
  }
  CHECK(found > 50);
}

TEST_CASE("a Parquet file that was cut is refused") {
  const TemporaryFolder folder;
  const auto images = open_image_folder(pictures(folder / "images").string(), {});
  const fs::path good = folder / "good.parquet", bad = folder / "bad.parquet";
  pack(*images, good, {.format = PackFormat::parquet}, [](const PackProgress&) {});
  const std::string bytes = read_file(good, ExitCode::data);
  for (size_t size = 0; size < bytes.size(); size += 97) {
    write_file(bad, std::string_view(bytes).substr(0, size));
    const std::string problem = problem_with(bad);
    CAPTURE(size, problem);
    CHECK(problem.find(size == 0 ? "the file is empty" : "no Parquet file, or it is damaged") != std::string::npos);
    CHECK(problem.find("bad.parquet") != std::string::npos);
  }
}
