// Data sets of 32×32 images that are held in memory.
#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"
#include "data/dataset.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>

namespace trainopt {
namespace {

constexpr int64_t kSide = 32, kPixels = kSide * kSide, kImageBytes = 3 * kPixels, kRecordBytes = 1 + kImageBytes, kClasses = 10;

ImageView view_of(const uint8_t* pixels) { return {pixels, kSide, kSide, kSide * 3}; }

class FakeCifar10 : public Dataset {
 public:
  FakeCifar10(int64_t size, uint64_t seed)
      : size_(size), seed_(seed), pixel_key_(mix_key(seed, "fake pixels")), label_key_(mix_key(seed, "fake labels")) {
    constexpr int64_t kMostKeptBytes = int64_t{1} << 30;  // more is drawn anew each time: 3 µs an image
    if (size > kMostKeptBytes / kImageBytes) return;
    pixels_.resize(static_cast<size_t>(size * kImageBytes));
    for (int64_t i = 0; i < size; ++i) draw(i, pixels_.data() + i * kImageBytes);
  }

  int64_t size() const override { return size_; }
  int64_t num_classes() const override { return kClasses; }
  int64_t label(int64_t sample) const override {
    return static_cast<int64_t>(PhiloxStream(label_key_, static_cast<uint64_t>(sample)).next_below(kClasses));
  }
  std::optional<ImageSize> uniform_size() const override { return ImageSize{kSide, kSide}; }
  ImageSize size_of(int64_t, LoadScratch&) const override { return {kSide, kSide}; }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    const uint8_t* pixels = pixels_.data() + sample * kImageBytes;
    if (pixels_.empty()) {
      scratch.file.resize(kImageBytes);
      draw(sample, scratch.file.data());
      pixels = scratch.file.data();
    }
    pipeline.run(view_of(pixels), key, destination, scratch.image);
  }
  std::string name_of(int64_t sample) const override { return fmt::format("fake image {}", sample); }
  std::string fingerprint() const override { return fmt::format("fake_cifar10-{}-{}", seed_, size_); }

 private:
  void draw(int64_t sample, uint8_t* pixels) const {
    for (int64_t i = 0; i < kImageBytes; i += 16) {
      const PhiloxBlock block = philox(pixel_key_, static_cast<uint64_t>(sample), static_cast<uint64_t>(i / 16));
      std::memcpy(pixels + i, block.data(), 16);
    }
  }

  int64_t size_;
  uint64_t seed_, pixel_key_, label_key_;
  std::vector<uint8_t> pixels_;
};

class Cifar10 : public Dataset {
 public:
  explicit Cifar10(const std::vector<std::filesystem::path>& files) {
    for (const auto& file : files) read(file);
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t num_classes() const override { return kClasses; }
  int64_t label(int64_t sample) const override { return labels_[static_cast<size_t>(sample)]; }
  std::optional<ImageSize> uniform_size() const override { return ImageSize{kSide, kSide}; }
  ImageSize size_of(int64_t, LoadScratch&) const override { return {kSide, kSide}; }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    pipeline.run(view_of(pixels_.data() + sample * kImageBytes), key, destination, scratch.image);
  }
  std::string name_of(int64_t sample) const override {
    size_t file = files_.size() - 1;
    while (files_[file].first_sample > sample) --file;
    return fmt::format("{}, record {}", files_[file].path, sample - files_[file].first_sample);
  }
  std::string fingerprint() const override {
    std::string parts;
    for (const auto& file : files_)
      parts += fmt::format("{}:{};", std::filesystem::path(file.path).filename().string(), file.first_sample);
    return fmt::format("cifar10-{:016x}-{}", XXH3_64bits(parts.data(), parts.size()), size());
  }

 private:
  struct File {
    std::string path;
    int64_t first_sample;
  };

  void read(const std::filesystem::path& path) {
    const std::string bytes = read_file(path, ExitCode::data);
    const auto records = static_cast<int64_t>(bytes.size()) / kRecordBytes;
    if (bytes.empty() || records * kRecordBytes != static_cast<int64_t>(bytes.size()))
      throw UserError(
          fmt::format("{} is not CIFAR-10's binary version, whose size is a multiple of {} bytes: it has {} bytes, {} records "
                      "and {} bytes",
                      path.string(), kRecordBytes, bytes.size(), records, static_cast<int64_t>(bytes.size()) % kRecordBytes),
          ExitCode::data);
    files_.push_back({path.string(), size()});
    pixels_.resize(pixels_.size() + static_cast<size_t>(records * kImageBytes));
    uint8_t* out = pixels_.data() + size() * kImageBytes;
    for (int64_t r = 0; r < records; ++r) {
      const auto* record = reinterpret_cast<const uint8_t*>(bytes.data()) + r * kRecordBytes;
      if (record[0] >= kClasses)
        throw UserError(fmt::format("{} has a label that is not 0 to 9: {} in record {}, at byte {}", path.string(), record[0], r,
                                    r * kRecordBytes),
                        ExitCode::data);
      labels_.push_back(record[0]);
      const uint8_t* red = record + 1;  // three planes
      for (int64_t i = 0; i < kPixels; ++i, out += 3) {
        out[0] = red[i];
        out[1] = red[kPixels + i];
        out[2] = red[2 * kPixels + i];
      }
    }
  }

  std::vector<File> files_;
  std::vector<uint8_t> pixels_, labels_;
};

std::vector<std::filesystem::path> existing(const std::filesystem::path& folder, const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> found;
  for (const auto& name : names)
    if (std::filesystem::exists(folder / name)) found.push_back(folder / name);
  return found;
}

std::shared_ptr<const Dataset> read_either(const std::string& path, const std::vector<std::string>& names) {
  if (!std::filesystem::exists(path)) throw UserError(fmt::format("the data set is not there: {}", path), ExitCode::data);
  if (!std::filesystem::is_directory(path)) return std::make_shared<Cifar10>(std::vector<std::filesystem::path>{path});
  const auto files = existing(path, names);
  if (files.empty()) throw UserError(fmt::format("the folder has none of {}: {}", fmt::join(names, ", "), path), ExitCode::data);
  return std::make_shared<Cifar10>(files);
}

const std::vector<std::string> kTraining{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                         "data_batch_5.bin"};

}  // namespace

std::shared_ptr<const Dataset> make_fake_cifar10(int64_t size, uint64_t seed) {
  return std::make_shared<FakeCifar10>(size, seed);
}

std::shared_ptr<const Dataset> read_cifar10(const std::string& path) { return read_either(path, kTraining); }

std::shared_ptr<const Dataset> read_cifar10_test(const std::string& path) {
  const bool has_test = std::filesystem::exists(std::filesystem::path(path) / "test_batch.bin");
  return read_either(path, has_test ? std::vector<std::string>{"test_batch.bin"} : kTraining);
}

}  // namespace trainopt
