#include "bad_files.h"
#include "data/batch_source.h"
#include "data/dataset.h"
#include "data/files/overlap.h"

#include "base/error.h"
#include "base/files/files.h"
#include "support/captured_log.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <png.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace trainopt;
using test::data_error;
using test::write_bytes;
namespace fs = std::filesystem;

namespace {

/// Replaces std::filesystem::remove_all: libtorch.so exports an incomplete one, which is found first and crashes.
void remove_tree(const fs::path& path) {
  if (fs::is_directory(path))
    for (const auto& entry : fs::directory_iterator(path)) remove_tree(entry.path());
  fs::remove(path);
}

void write_grey_png(const fs::path& path, uint32_t height, uint32_t width, uint8_t value) {
  fs::create_directories(path.parent_path());
  const std::vector<uint8_t> pixels(3 * height * width, value);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = height;
  image.width = width;
  image.format = PNG_FORMAT_RGB;
  REQUIRE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0);
}

/// A record whose red, green and blue values are `base`, `base` + 1 and `base` + 2, except that the first pixel of the
/// second row has red 200.
std::string record(uint8_t label, uint8_t base) {
  std::string bytes(3073, '\0');
  bytes[0] = static_cast<char>(label);
  for (int c = 0; c < 3; ++c)
    for (int i = 0; i < 1024; ++i) bytes[static_cast<size_t>(1 + c * 1024 + i)] = static_cast<char>(base + c);
  bytes[1 + 32] = static_cast<char>(200);
  return bytes;
}

std::vector<uint8_t> load(const ImageDataset& dataset, int64_t sample) {
  LoadScratch scratch;
  const auto [height, width] = dataset.size_of(sample, scratch);
  std::vector<uint8_t> pixels(static_cast<size_t>(height * width * 3));
  dataset.load(sample, 0, Pipeline({}), {PixelFormat::u8_hwc, pixels.data(), height, width}, scratch);
  return pixels;
}

std::unique_ptr<Loader> loader_of(const DataConfig& data) {
  return make_loader(open_data(data, {.num_classes = 10}, /*seed=*/0), {.num_workers = data.num_workers.value.value()});
}

int64_t label(const std::shared_ptr<const Dataset>& dataset, int64_t sample) {
  return dynamic_cast<const ImageDataset&>(*dataset).label(sample);
}

}  // namespace

TEST_CASE("fake images depend only on seed and index and look random") {
  const auto small = make_fake_cifar10(10, 3), large = make_fake_cifar10(2000, 3), other = make_fake_cifar10(10, 4);
  const auto huge = make_fake_cifar10(1000000, 3);  // too many to store: drawn on use
  REQUIRE(load(*small, 7) == load(*large, 7));
  REQUIRE(load(*small, 7) == load(*huge, 7));
  REQUIRE(load(*small, 7) != load(*small, 8));
  REQUIRE(load(*small, 7) != load(*other, 7));
  REQUIRE(small->label(7) == huge->label(7));
  REQUIRE(first_difference(small->identity(), large->identity()));
  double sum = 0;
  std::vector<int64_t> labels(10);
  for (int64_t i = 0; i < 2000; ++i) {
    for (const uint8_t value : load(*large, i)) sum += value;
    ++labels[static_cast<size_t>(large->label(i))];
  }
  CHECK(sum / (2000 * 3072.0) == Approx(127.5).margin(0.15));  // five standard deviations
  for (const int64_t n : labels) CHECK(std::abs(n - 200) < 70);
}

TEST_CASE("cifar10 reads all existing batch files and interleaves the planes") {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "data_batch_4.bin", record(9, 60));
  write_bytes(folder.path() / "data_batch_2.bin", record(1, 10) + record(2, 20));
  const auto dataset = read_cifar10(folder.path().string());
  REQUIRE(dataset->size() == 3);
  REQUIRE(dataset->num_classes() == 10);
  REQUIRE(dataset->label(0) == 1);
  REQUIRE(dataset->label(2) == 9);
  const auto pixels = load(*dataset, 1);
  REQUIRE(pixels[0] == 20);
  REQUIRE(pixels[1] == 21);
  REQUIRE(pixels[2] == 22);
  REQUIRE(pixels[32 * 3] == 200);  // red of the second row's first pixel
  REQUIRE(pixels[32 * 3 + 1] == 21);
  REQUIRE(dataset->name_of(2) == (folder.path() / "data_batch_4.bin").string() + ", record 0");

  DataConfig data;
  data.dataset = DatasetKind::cifar10;
  data.path = folder.path().string();
  REQUIRE(open_evaluation_data(data, {}, std::nullopt, dataset.get()) == nullptr);
  write_bytes(folder.path() / "test_batch.bin", record(5, 90));
  REQUIRE(label(open_evaluation_data(data, {}, std::nullopt, dataset.get()), 0) == 5);
  REQUIRE(open_evaluation_data(data, {}, folder.path().string(), dataset.get())->size() == 1);
  REQUIRE(read_cifar10(folder.path().string())->size() == 3);
  REQUIRE(read_cifar10((folder.path() / "test_batch.bin").string())->size() == 1);
}

TEST_CASE("the error for a damaged cifar10 file names the file and the position") {
  const TemporaryFolder folder;
  REQUIRE_THAT(data_error([&] { read_cifar10((folder.path() / "none").string()); }), ContainsSubstring("none"));
  REQUIRE_THAT(data_error([&] { read_cifar10(folder.path().string()); }), ContainsSubstring("data_batch_1.bin"));
  const auto file = folder.path() / "data_batch_1.bin";
  write_bytes(file, record(1, 1) + record(10, 1));
  const auto bad_label = data_error([&] { read_cifar10(folder.path().string()); });
  REQUIRE_THAT(bad_label, ContainsSubstring(file.string()) && ContainsSubstring("10 in record 1, at byte 3073"));
  write_bytes(file, record(1, 1) + "x");
  REQUIRE_THAT(data_error([&] { read_cifar10(folder.path().string()); }), ContainsSubstring("3074 bytes"));
  write_bytes(file, "");
  REQUIRE_THAT(data_error([&] { read_cifar10(folder.path().string()); }), ContainsSubstring("0 bytes"));
}

TEST_CASE("image_folder numbers classes and files in bytewise order") {
  const TemporaryFolder folder;
  write_grey_png(folder.path() / "b" / "2.png", 4, 6, 1);
  write_grey_png(folder.path() / "b" / "10.PNG", 4, 6, 2);
  write_grey_png(folder.path() / "a" / "z.png", 4, 6, 3);
  write_grey_png(folder.path() / "B" / "q.png", 4, 6, 4);
  write_bytes(folder.path() / "b" / "notes.txt", "no image");
  write_bytes(folder.path() / "readme.md", "no class");
  const auto dataset = open_image_folder(folder.path().string(), {});
  REQUIRE(dataset->class_names() == std::vector<std::string>{"B", "a", "b"});
  REQUIRE(dataset->size() == 4);
  const std::vector<uint8_t> values{4, 3, 2, 1};  // B/q a/z b/10 b/2
  const std::vector<int64_t> labels{0, 1, 2, 2};
  for (int64_t i = 0; i < 4; ++i) {
    REQUIRE(dataset->label(i) == labels[static_cast<size_t>(i)]);
    REQUIRE(load(*dataset, i) == std::vector<uint8_t>(4 * 6 * 3, values[static_cast<size_t>(i)]));
  }

  const auto evaluation_path = folder.path() / "evaluation";
  write_grey_png(evaluation_path / "b" / "1.png", 4, 6, 9);
  const auto evaluation = open_image_folder(evaluation_path.string(), {.training = dataset.get()});
  REQUIRE(label(evaluation, 0) == 2);  // as in training, although it is the only folder
  write_grey_png(evaluation_path / "c" / "1.png", 4, 6, 9);
  REQUIRE_THAT(data_error([&] { open_image_folder(evaluation_path.string(), {.training = dataset.get()}); }),
               ContainsSubstring("1 class of the evaluation data is not in the training data: c:"));
}

TEST_CASE("image_folder reads the folders below a class in torchvision's order") {
  const TemporaryFolder folder;
  // sorted(os.walk()) compares whole paths: a-b comes before a/c, because - is before /.
  uint8_t value = 0;
  for (const char* name : {"x/1.png", "x/a/1.png", "x/a-b/1.png", "x/a/c/0.png", "y/deep/down/1.png"})
    write_grey_png(folder.path() / name, 4, 6, ++value);
  fs::create_directory_symlink(folder.path() / "y", folder.path() / "x" / "z");
  const auto dataset = open_image_folder(folder.path().string(), {});
  std::vector<std::string> names;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    names.push_back(fs::path(dataset->name_of(i)).lexically_relative(folder.path()).string());
    labels.push_back(dataset->label(i));
  }
  CHECK(names == std::vector<std::string>{"x/1.png", "x/a/1.png", "x/a-b/1.png", "x/a/c/0.png", "x/z/deep/down/1.png",
                                          "y/deep/down/1.png"});
  CHECK(labels == std::vector<int64_t>{0, 0, 0, 0, 0, 1});
  CHECK(load(*dataset, 3) == std::vector<uint8_t>(4 * 6 * 3, 4));
  CHECK(dataset->left_out().empty());
}

TEST_CASE("image_folder counts what it leaves out") {
  const TemporaryFolder folder;
  for (const char* name : {"a/1.png", "b/1.png"}) write_grey_png(folder.path() / name, 4, 6, 1);
  for (const char* name :
       {"a/2.webp", "a/3.WEBP", "a/._1.png", "b/Thumbs.db", ".cache/x/1.png", "b/.thumb/1.png", "labels.csv", "0.png"})
    write_bytes(folder.path() / name, "x");
  const auto dataset = open_image_folder(folder.path().string(), {});
  CHECK(dataset->size() == 2);
  CHECK(dataset->class_names() == std::vector<std::string>{"a", "b"});
  const std::string text = dataset->left_out().text();
  CHECK_THAT(text, Catch::Matchers::StartsWith("2 .webp files (a/"));
  for (const char* part : {"1 macOS ._ file (a/._1.png)", "1 .db file (b/Thumbs.db)", "1 .csv file (labels.csv)",
                           "1 hidden folder (.cache: torchvision counts it as a class)",
                           "1 hidden subfolder (b/.thumb: torchvision reads its images)", "1 .png file (0.png)"})
    CHECK_THAT(text, ContainsSubstring(part));
}

TEST_CASE("a folder that is no folder of classes says what to do") {
  const auto said = [](const fs::path& path) { return data_error([&] { open_image_folder(path.string(), {}); }); };
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  write_grey_png(root / "flat" / "1.png", 4, 6, 1);
  CHECK_THAT(said(root / "flat"), ContainsSubstring("the images are in") && ContainsSubstring("1 .png file"));
  write_bytes(root / "x.tar.gz", "\x1f\x8b\x08 and so on");
  CHECK_THAT(said(root / "x.tar.gz"), ContainsSubstring("reads a folder, and this is compressed with gzip"));
  write_bytes(root / "webp" / "a" / "1.webp", "RIFF");
  CHECK_THAT(said(root / "webp"), ContainsSubstring("no images") && ContainsSubstring("1 .webp file (a/1.webp)"));
  for (const char* name : {"imagenet/train/cat/1.png", "imagenet/val/cat/1.png", "alone/train/cat/1.png",
                           "inside/cat/train/1.png", "inside/cat/test/1.png"})
    write_grey_png(root / name, 4, 6, 1);
  const std::string imagenet = (root / "imagenet").string();
  CHECK_THAT(said(imagenet),
             ContainsSubstring("data.path=" + imagenet + "/train evaluation.path=" + imagenet + "/val"));
  CHECK_THAT(said(root / "alone"), ContainsSubstring("data.path=" + (root / "alone/train").string()));
  write_grey_png(root / "inside/dog/train/1.png", 4, 6, 1);
  write_grey_png(root / "inside/dog/val/1.png", 4, 6, 1);
  CHECK_THAT(said(root / "inside"), ContainsSubstring("each class has the images of several splits"));
  write_grey_png(root / "high/pets/train/cat/1.png", 4, 6, 1);
  write_grey_png(root / "high/pets/val/cat/1.png", 4, 6, 1);
  const std::string pets = (root / "high/pets").string();
  CHECK_THAT(said(root / "high"), ContainsSubstring("data.path=" + pets + "/train evaluation.path=" + pets + "/val"));
  write_bytes(root / "shards" / "a.tar", "");
  CHECK_THAT(said(root / "shards"), ContainsSubstring("; data.dataset: tar reads *.tar files"));
  fs::create_directories(root / "loop" / "a");
  fs::create_directory_symlink(root / "loop", root / "loop" / "a" / "up");
  CHECK_THAT(said(root / "loop"),
             ContainsSubstring("leads back to a folder that it is in") && ContainsSubstring("loop/a/up -> "));
  fs::create_directories(root / "self" / "a");
  fs::create_symlink("b", root / "self" / "a" / "b");
  CHECK_THAT(said(root / "self"),
             ContainsSubstring("a link leads to itself; remove it") && ContainsSubstring("self/a/b"));
}

TEST_CASE("folders of splits are told from classes that are called like them") {
  const auto said = [](const std::vector<std::string>& names) {
    const TemporaryFolder folder;
    for (const auto& name : names) write_grey_png(folder.path() / name, 4, 6, 1);
    return data_error([&] { open_image_folder(folder.path().string(), {}); });
  };
  for (const auto& names : {std::vector<std::string>{"train/cat/1.png", "test/cat/1.png", "extra/cat/1.png"},
                            {"seg_train/sea/1.png", "seg_test/sea/1.png", "seg_pred/1.png"},
                            {"train/cat/1.png", "val/1.png"},
                            {"train/1.png", "test/1.png"}})
    CHECK_THAT(said(names), ContainsSubstring("training files are beside others"));
  for (const auto& names : {std::vector<std::string>{"freight train/1.png", "test tube/1.png"},
                            {"training_shoes/1.png", "testing_kit/1.png", "train/1.png"},
                            {"express/train/1.png", "express/test/1.png", "local/1.png"}})
    CHECK(said(names) == "no error");
}

TEST_CASE("folders of splits without a training split are no classes either") {
  const TemporaryFolder folder;
  for (const char* name : {"val/cat/1.png", "test/cat/1.png"}) write_grey_png(folder.path() / name, 4, 6, 1);
  CHECK_THAT(data_error([&] { open_image_folder(folder.path().string(), {}); }),
             ContainsSubstring("the folders have the names of splits, not of classes; name one of them: test, val"));
}

TEST_CASE("folders that link to each other are refused with the link that leads back") {
  const TemporaryFolder folder;
  write_grey_png(folder.path() / "a" / "1.png", 4, 6, 1);
  write_grey_png(folder.path() / "b" / "1.png", 4, 6, 1);
  fs::create_directory_symlink("../b", folder.path() / "a" / "x");
  fs::create_directory_symlink("../a", folder.path() / "b" / "y");
  CHECK_THAT(data_error([&] { open_image_folder(folder.path().string(), {}); }),
             ContainsSubstring("a link leads back to a folder that it is in") && ContainsSubstring("/a/x/y -> "));
}

TEST_CASE("a file is read to its end once, and to its part from then on") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "a" / "1.jpg";
  fs::create_directories(file.parent_path());
  fs::copy_file(fs::path(DATA_IMAGE_FILES) / "420.jpg", file);
  const Pipeline top({CenterCropConfig{4, 4}});
  LoadScratch scratch;
  std::vector<uint8_t> pixels(4 * 4 * 3);
  const auto use = [&](const ImageDataset& dataset) {
    dataset.load(0, 0, top, {PixelFormat::u8_hwc, pixels.data(), 4, 4}, scratch);
  };
  const auto dataset = open_image_folder(folder.path().string(), {});
  use(*dataset);
  const auto expected = pixels;
  std::string bytes = read_file(file, ExitCode::data);
  bytes.replace(bytes.size() - 60, 58, std::string(58, '\xff'));  // far below the crop; the end's marker stays
  write_bytes(file, bytes);
  use(*dataset);
  CHECK(pixels == expected);
  for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(use(*open_image_folder(folder.path().string(), {})), BadSample);
}

TEST_CASE("evaluation data that is trained on is found") {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  write_grey_png(root / "t" / "a" / "1.png", 4, 6, 1);
  write_grey_png(root / "t" / "a" / "2.png", 4, 6, 2);
  write_grey_png(root / "v" / "a" / "3.png", 4, 6, 3);
  const auto images = [](const fs::path& path) { return open_image_folder(path.string(), {}); };
  CHECK(trained_on(*images(root / "t"), *images(root / "v")) == "");
  CHECK(trained_on(*images(root / "t"), *images(root / "v" / ".." / "t")) == "all its 2 files are training files");
  fs::create_symlink(root / "t" / "a" / "1.png", root / "v" / "a" / "4.png");
  CHECK(trained_on(*images(root / "t"), *images(root / "v")) == "1 of its 2 files are training files");
  fs::copy(root / "t", root / "copy", fs::copy_options::recursive);
  CHECK(trained_on(*images(root / "t"), *images(root / "copy")) == "it is a copy of the training data");
  write_grey_png(root / "copy" / "a" / "2.png", 4, 6, 9);
  CHECK(trained_on(*images(root / "t"), *images(root / "copy")) == "");
  write_bytes(root / "data_batch_1.bin", record(1, 1));
  write_bytes(root / "other" / "data_batch_1.bin", record(1, 1));
  CHECK(trained_on(*read_cifar10(root.string()), *read_cifar10_test(root.string())) == "its file is a training file");
  CHECK(trained_on(*read_cifar10(root.string()), *read_cifar10_test((root / "other").string())) ==
        "it is a copy of the training data");
}

TEST_CASE("image_folder says what is missing or cannot be read") {
  const TemporaryFolder folder;
  REQUIRE_THAT(data_error([&] { open_image_folder((folder.path() / "none").string(), {}); }),
               ContainsSubstring("none"));
  REQUIRE_THAT(data_error([&] { open_image_folder(folder.path().string(), {}); }),
               ContainsSubstring("folder for each class"));
  fs::create_directories(folder.path() / "empty");
  write_grey_png(folder.path() / "full" / "1.png", 4, 6, 1);
  REQUIRE_THAT(data_error([&] { open_image_folder(folder.path().string(), {}); }),
               ContainsSubstring("no image") && ContainsSubstring("empty"));
  write_bytes(folder.path() / "empty" / "1.jpg", "this is not a JPEG file");
  write_bytes(folder.path() / "empty" / "2.jpg", "");
  const auto dataset = open_image_folder(folder.path().string(), {});
  fs::remove(folder.path() / "full" / "1.png");
  for (int64_t i = 0; i < 3; ++i) REQUIRE_THROWS_AS(load(*dataset, i), BadSample);
}

TEST_CASE("an image of a different size than the first is an error that names the file") {
  const TemporaryFolder folder;
  write_grey_png(folder.path() / "a" / "1.png", 4, 6, 1);
  write_grey_png(folder.path() / "a" / "2.png", 4, 7, 2);
  DataConfig data;
  data.dataset = DatasetKind::image_folder;
  data.path = folder.path().string();
  data.batch_size = 1;
  data.shuffle = false;
  auto loader = loader_of(data);
  REQUIRE(loader->format().size == ImageSize{4, 6});
  loader->release(loader->next());
  REQUIRE_THAT(data_error([&] { loader->next(); }), ContainsSubstring("2.png"));
  data.transforms = {ResizeConfig{.shorter_side = std::nullopt, .exact = {8, 8}}};
  auto resized = loader_of(data);
  resized->release(resized->next());
  resized->release(resized->next());
}

TEST_CASE("the memory cache delivers the same images after the files are deleted") {
  const TemporaryFolder folder;
  for (uint8_t i = 0; i < 12; ++i)
    write_grey_png(folder.path() / "a" / fmt::format("{}.png", i), 5, 5, static_cast<uint8_t>(20 * i));
  DataConfig data;
  data.dataset = DatasetKind::image_folder;
  data.path = folder.path().string();
  data.batch_size = 12;
  data.num_workers = 3;
  data.transforms = {RandomCropConfig{4, 4, 1}};
  const auto take_all = [](Loader& loader) {
    const HostBatch batch = loader.next();
    at::Tensor copy = batch.input.clone();
    loader.release(batch);
    return copy;
  };
  auto plain = loader_of(data);
  data.cache.kind = CacheKind::memory;
  auto cached = loader_of(data);
  for (int epoch = 0; epoch < 2; ++epoch) REQUIRE(at::equal(take_all(*plain), take_all(*cached)));
  const at::Tensor third = take_all(*plain);
  const LoaderWork work = plain->take_work(), once = cached->take_work();
  CHECK((work.samples == 36 && once.samples == 24));
  CHECK((once.stages.read_ns > 0 && once.stages.decode_ns > 0 && once.stages.transform_ns > 0));
  for (const LoaderWork& each : {work, once})
    CHECK(each.stages.read_ns + each.stages.decode_ns + each.stages.transform_ns <= each.busy_ns);
  remove_tree(folder.path() / "a");
  REQUIRE(at::equal(third, take_all(*cached)));
  const StageTimes later = cached->take_work().stages;
  CHECK((later.read_ns == 0 && later.decode_ns == 0 && later.transform_ns > 0));
  data.decode = DecodeKind::scaled;
  REQUIRE_THROWS_AS(open_training_data(data, {}, 0), UserError);
}

TEST_CASE("the images in memory are within data.memory_limit, of training and evaluation together") {
  const TemporaryFolder folder;
  constexpr int64_t kSide = 5;
  for (const char* set : {"train", "test"})
    for (uint8_t i = 0; i < 3; ++i)
      write_grey_png(folder.path() / set / "a" / fmt::format("{}.png", i), kSide, kSide, i);
  DataConfig data;
  data.dataset = DatasetKind::image_folder;
  data.path = (folder.path() / "train").string();
  data.cache.kind = CacheKind::memory;
  data.memory_limit = Bytes{3 * kSide * kSide * 3};  // three images
  LoadScratch scratch;
  std::vector<uint8_t> pixels(kSide * kSide * 3);
  const auto is_loaded = [&](const Dataset& images, int64_t sample) {
    try {
      const Destination to{PixelFormat::u8_hwc, pixels.data(), kSide, kSide};
      dynamic_cast<const ImageDataset&>(images).load(sample, 0, Pipeline({}), to, scratch);
      return pixels[0] == sample;
    } catch (const BadSample&) {
      return false;
    }
  };
  const CapturedLog log;
  const auto training = open_training_data(data, {}, 0);
  {
    const auto closed = open_evaluation_data(data, {}, (folder.path() / "test").string(), training.get());
    CHECK(is_loaded(*closed, 1));  // gives its memory back
  }
  const auto evaluation = open_evaluation_data(data, {}, (folder.path() / "test").string(), training.get());
  CHECK(is_loaded(*evaluation, 0));
  CHECK(log.lines() == 0);
  for (int turn = 0; turn < 2; ++turn)
    for (int64_t sample = 0; sample < 3; ++sample)
      for (const auto* images : {training.get(), evaluation.get()}) CHECK(is_loaded(*images, sample));
  CHECK(log.lines() == 1);
  CHECK_THAT(log.text(), ContainsSubstring("data.memory_limit"));
  remove_tree(folder.path() / "train");
  remove_tree(folder.path() / "test");
  const auto kept = [&](const Dataset& images) {
    return is_loaded(images, 0) + is_loaded(images, 1) + is_loaded(images, 2);
  };
  CHECK(kept(*training) == 2);
  CHECK(kept(*evaluation) == 1);
}

TEST_CASE("D12: a file that is deleted, shrunk or replaced in mid-epoch ends the run with an error that names it") {
  struct Change {
    const char* name;
    void (*make)(const fs::path&);
    const char* reason;
  };
  const Change change = GENERATE(
      Change{"deleted", [](const fs::path& file) { fs::remove(file); }, "No such file"},
      Change{"shrunk", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); }, "PNG: "},
      Change{"emptied", [](const fs::path& file) { fs::resize_file(file, 0); }, "the file is empty"},
      Change{"replaced by a folder", [](const fs::path& file) { fs::remove(file), fs::create_directory(file); },
             "Is a directory"},
      Change{"replaced by a pipe", [](const fs::path& file) { fs::remove(file), ::mkfifo(file.c_str(), 0644); },
             "not a regular file"},
      Change{"replaced by another image", [](const fs::path& file) { write_grey_png(file, 9, 9, 1); }, "9x9"});
  INFO(change.name);
  for (const int64_t workers : {0, 2}) {
    const TemporaryFolder folder;
    for (int i = 0; i < 80; ++i) write_grey_png(folder.path() / "a" / fmt::format("{:02}.png", i), 4, 6, 1);
    DataConfig data;
    data.dataset = DatasetKind::image_folder;
    data.path = folder.path().string();
    data.batch_size = 4;
    data.num_workers = workers;
    data.shuffle = false;
    auto loader = loader_of(data);
    loader->release(loader->next());
    for (int i = 40; i < 80; ++i)
      change.make(folder.path() / "a" / fmt::format("{:02}.png", i));  // beyond what was prefetched
    const auto error = data_error([&] {
      for (int batch = 1; batch < 20; ++batch) loader->release(loader->next());
    });
    CHECK_THAT(error, ContainsSubstring((folder.path() / "a/40.png").string()) && ContainsSubstring(change.reason));
  }
}

TEST_CASE("D16: a data set's identity changes if its samples would, and first_difference() names what changed") {
  const TemporaryFolder folder;
  const auto cifar = [&] { return read_cifar10(folder.path().string())->identity(); };
  write_bytes(folder.path() / "data_batch_1.bin", record(1, 10) + record(2, 20));
  write_bytes(folder.path() / "data_batch_2.bin", record(3, 30));
  const DataIdentity before = cifar();
  CHECK(before.kind == "cifar10");
  CHECK(!first_difference(before, cifar()));
  const auto content_changed = [&](const DataIdentity& now) {
    CHECK(now.samples == before.samples);
    CHECK(first_difference(before, now).value_or("").starts_with("content "));
  };
  write_bytes(folder.path() / "data_batch_2.bin", record(3, 31));
  content_changed(cifar());
  write_bytes(folder.path() / "data_batch_2.bin", record(2, 20));  // the same records in other files
  write_bytes(folder.path() / "data_batch_1.bin", record(3, 30) + record(1, 10));
  content_changed(cifar());
  write_bytes(folder.path() / "data_batch_1.bin", record(1, 10) + record(2, 20));
  fs::remove(folder.path() / "data_batch_2.bin");
  write_bytes(folder.path() / "data_batch_3.bin", record(3, 30));
  content_changed(cifar());
  write_bytes(folder.path() / "data_batch_4.bin", record(3, 30));
  CHECK(first_difference(before, cifar()) == "samples 3 → 4");

  const auto seeds = [](int64_t size, uint64_t seed) { return make_fake_cifar10(size, seed)->identity(); };
  CHECK(first_difference(seeds(10, 3), seeds(10, 4)) == "content seed 3 → seed 4");
  CHECK(first_difference(seeds(10, 3), before) == "kind fake_cifar10 → cifar10");
  CHECK(first_difference({"a", 1, 2, ""}, {"a", 1, 3, "x"}) == "classes 2 → 3");
}

TEST_CASE("D16: an image folder's identity changes with the names, order and sizes of its files") {
  const TemporaryFolder folder;
  const auto identity = [&] { return open_image_folder(folder.path().string(), {})->identity(); };
  write_grey_png(folder.path() / "a" / "1.png", 4, 6, 1);
  write_grey_png(folder.path() / "a" / "2.png", 4, 6, 1);
  write_grey_png(folder.path() / "b" / "3.png", 4, 6, 1);
  const DataIdentity before = identity();
  CHECK(!first_difference(before, identity()));
  const auto check_change_and_restore = [&](const char* field, const auto& change, const auto& restore) {
    change();
    INFO(field);
    CHECK(first_difference(before, identity()).value_or("").starts_with(field));
    restore();
    CHECK(!first_difference(before, identity()));
  };
  const auto move = [&](const char* from, const char* to) {
    return [=, &folder] { fs::rename(folder.path() / from, folder.path() / to); };
  };
  check_change_and_restore("content", move("a/1.png", "a/9.png"), move("a/9.png", "a/1.png"));  // order and name
  check_change_and_restore("content", move("a/2.png", "b/2.png"), move("b/2.png", "a/2.png"));  // class
  check_change_and_restore("content", move("a", "c"), move("c", "a"));
  check_change_and_restore(
      "content", [&] { std::ofstream(folder.path() / "b/3.png", std::ios::app) << "x"; },
      [&] { fs::resize_file(folder.path() / "b/3.png", fs::file_size(folder.path() / "b/3.png") - 1); });
  check_change_and_restore("samples 3 → 2", move("a/2.png", "a/2.txt"), move("a/2.txt", "a/2.png"));
  check_change_and_restore(
      "samples 3 → 4", [&] { write_grey_png(folder.path() / "c" / "1.png", 4, 6, 1); },
      [&] { remove_tree(folder.path() / "c"); });
  fs::remove(folder.path() / "b/3.png");
  write_grey_png(folder.path() / "b" / "4.png", 4, 6, 1);
  CHECK(first_difference(before, identity()).value_or("").starts_with("content"));
}
