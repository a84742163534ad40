// Data sets of 32×32 images held in memory.
#include "base/error.h"
#include "base/files/file_kind.h"
#include "base/files/files.h"
#include "base/philox.h"
#include "data/dataset.h"
#include "data/formats/cifar10_file.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>

namespace trainopt {
namespace {

ImageView view_of(const uint8_t* pixels) { return {pixels, kCifarSide, kCifarSide, kCifarSide * 3}; }

class FakeCifar10 : public ImageDataset {
 public:
  FakeCifar10(int64_t size, uint64_t seed)
      : size_(size), seed_(seed), pixel_key_(mix_key(seed, "fake pixels")), label_key_(mix_key(seed, "fake labels")) {
    constexpr int64_t kMaxCachedBytes = int64_t{1} << 30;  // above this, images are redrawn on use: 3 µs each
    if (size > kMaxCachedBytes / kCifarImageBytes) return;
    pixels_.resize(static_cast<size_t>(size * kCifarImageBytes));
    for (int64_t i = 0; i < size; ++i) draw(i, pixels_.data() + i * kCifarImageBytes);
  }

  int64_t size() const override { return size_; }
  int64_t num_classes() const override { return kCifarClasses; }
  int64_t label(int64_t sample) const override {
    return static_cast<int64_t>(PhiloxStream(label_key_, static_cast<uint64_t>(sample)).next_below(kCifarClasses));
  }
  std::optional<ImageSize> uniform_size() const override { return ImageSize{kCifarSide, kCifarSide}; }
  ImageSize size_of(int64_t, LoadScratch&) const override { return {kCifarSide, kCifarSide}; }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    const uint8_t* pixels = pixels_.data() + sample * kCifarImageBytes;
    if (pixels_.empty()) {
      scratch.file.resize(kCifarImageBytes);
      draw(sample, scratch.file.data());
      pixels = scratch.file.data();
    }
    pipeline.run(view_of(pixels), key, destination, scratch.image);
  }
  std::string name_of(int64_t sample) const override { return fmt::format("fake image {}", sample); }

 private:
  DataIdentity find_identity() const override {
    return {"fake_cifar10", size_, kCifarClasses, fmt::format("seed {}", seed_)};
  }
  void draw(int64_t sample, uint8_t* pixels) const {
    for (int64_t i = 0; i < kCifarImageBytes; i += 16) {
      const PhiloxBlock block = philox(pixel_key_, static_cast<uint64_t>(sample), static_cast<uint64_t>(i / 16));
      std::memcpy(pixels + i, block.data(), 16);
    }
  }

  int64_t size_;
  uint64_t seed_, pixel_key_, label_key_;
  std::vector<uint8_t> pixels_;
};

constexpr int64_t kMaxCifarFileBytes = int64_t{4} << 30;  // held in memory; the data set's own files have 31 MB each

class Cifar10 : public ImageDataset {
 public:
  explicit Cifar10(const std::vector<std::filesystem::path>& files) {
    for (const auto& file : files) read(file);
    FoundFiles found;
    for (const auto& file : files) found.files.push_back(file.string());
    note(std::move(found));
  }

  int64_t size() const override { return static_cast<int64_t>(images_.labels.size()); }
  int64_t num_classes() const override { return kCifarClasses; }
  int64_t label(int64_t sample) const override { return images_.labels[static_cast<size_t>(sample)]; }
  std::optional<ImageSize> uniform_size() const override { return ImageSize{kCifarSide, kCifarSide}; }
  ImageSize size_of(int64_t, LoadScratch&) const override { return {kCifarSide, kCifarSide}; }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    pipeline.run(view_of(images_.pixels.data() + sample * kCifarImageBytes), key, destination, scratch.image);
  }
  std::string name_of(int64_t sample) const override {
    size_t file = files_.size() - 1;
    while (files_[file].first_sample > sample) --file;
    return fmt::format("{}, record {}", files_[file].path, sample - files_[file].first_sample);
  }

 private:
  DataIdentity find_identity() const override {
    return {"cifar10", size(), kCifarClasses, fmt::format("{:016x}", hash_)};
  }

  struct File {
    std::string path;
    int64_t first_sample;
  };

  void read(const std::filesystem::path& path) {
    constexpr size_t kTelling = 6;        // a label and pixels may be any bytes
    if (kind_of(path) != PathKind::file)  // a pipe would wait, and a device would never end
      throw UserError(fmt::format("not a regular file: {}", path.string()), ExitCode::data);
    const std::string bytes = read_file(path, ExitCode::data, kMaxCifarFileBytes), name = path.filename().string();
    if (const auto kind = what_it_is(bytes, kTelling); !kind.empty())
      throw UserError(fmt::format("{} is not a CIFAR-10 file but {}", path.string(), kind), ExitCode::data);
    files_.push_back({path.string(), size()});
    append_cifar10(bytes, path.string(), images_);
    hash_ = XXH3_64bits_withSeed(name.data(), name.size(), hash_);
    hash_ = XXH3_64bits_withSeed(bytes.data(), bytes.size(), hash_);
  }

  std::vector<File> files_;
  CifarImages images_;
  uint64_t hash_ = 0;  ///< over each file's name and bytes, in order
};

std::vector<std::filesystem::path> existing(const std::filesystem::path& folder,
                                            const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> found;
  for (const auto& name : names)
    if (kind_of(folder / name) != PathKind::absent) found.push_back(folder / name);
  return found;
}

[[noreturn]] void refuse_folder(const std::filesystem::path& path, const std::vector<std::string>& names) {
  LeftOut others;
  std::string hint;
  for (const auto& name : names_in_folder(path, ExitCode::data)) {
    if (kind_of(path / name) != PathKind::folder)
      others.add_file(name);
    else if (!existing(path / name, names).empty())
      hint = fmt::format("; its folder {} has some", name);
  }
  if (std::filesystem::exists(path / "data_batch_1"))
    hint = "; this is the Python version, which is not read: download cifar-10-binary.tar.gz";
  if (hint.empty() && !others.empty()) hint = "; it has " + others.text();
  throw UserError(fmt::format("cifar10 needs the data set's binary version, but the folder contains none of {}: {}{}",
                              fmt::join(names, ", "), path.string(), hint),
                  ExitCode::data);
}

std::shared_ptr<const ImageDataset> read_either(const std::string& path, const std::vector<std::string>& names) {
  if (require_path(path) != PathKind::folder)
    return std::make_shared<Cifar10>(std::vector<std::filesystem::path>{path});
  const auto files = existing(path, names);
  if (files.empty()) refuse_folder(path, names);
  return std::make_shared<Cifar10>(files);
}

const std::vector<std::string> kTraining{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                         "data_batch_5.bin"};

}  // namespace

std::shared_ptr<const ImageDataset> make_fake_cifar10(int64_t size, uint64_t seed) {
  return std::make_shared<FakeCifar10>(size, seed);
}

std::shared_ptr<const ImageDataset> read_cifar10(const std::string& path) { return read_either(path, kTraining); }

std::shared_ptr<const ImageDataset> read_cifar10_test(const std::string& path) {
  const bool has_test = kind_of(std::filesystem::path(path) / "test_batch.bin") != PathKind::absent;
  return read_either(path, has_test ? std::vector<std::string>{"test_batch.bin"} : kTraining);
}

}  // namespace trainopt
