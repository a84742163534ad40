// Tests Parquet files: what is packed loads as before, and damage is found and named. tests/cli/test_parquet.py reads
// files that pyarrow wrote, and lets pyarrow read ours.
#include "base/error.h"
#include "base/files.h"
#include "data/dataset.h"
#include "data/image/png.h"
#include "data/pack.h"
#include "data/parquet/parquet_file.h"
#include "support/catch.h"
#include "support/file_faults.h"
#include "support/temporary_folder.h"

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

}  // namespace

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

TEST_CASE("a changed byte of a Parquet file is found or changes nothing") {
  const TemporaryFolder folder;
  const auto images = open_image_folder(pictures(folder / "images").string(), {});
  const fs::path good = folder / "good.parquet", bad = folder / "bad.parquet";
  pack(*images, good, {.format = PackFormat::parquet}, [](const PackProgress&) {});
  const std::string bytes = read_file(good, ExitCode::data);
  const auto unchanged = open_parquet(good.string(), {});
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
    for (int64_t sample = 0; sample < std::min(read->size(), kPictures); ++sample)
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
    CHECK(problem.find("no Parquet file, or it is damaged") != std::string::npos);
    CHECK(problem.find("bad.parquet") != std::string::npos);
  }
}
