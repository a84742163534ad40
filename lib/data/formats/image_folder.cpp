#include "base/checksum.h"
#include "base/files/file_calls.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/progress.h"
#include "base/units.h"
#include "data/dataset.h"
#include "data/identity.h"
#include "data/image/decode.h"
#include "data/sampler.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <filesystem>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

/// Reads a complete file into a buffer that is never shrunk. Throws BadSample.
void read_into(const std::string& path, std::vector<uint8_t>& bytes) {
  try {
    const File file = File::open(path, ExitCode::data);
    const int64_t size = file.size();
    if (size < 0) throw BadSample("not a regular file");
    if (size > kMaxFileBytes) throw BadSample(fmt::format("{} bytes is too large for an image", size));
    bytes.resize(static_cast<size_t>(size));
    if (file.read_at(0, bytes.data(), bytes.size()) < bytes.size())
      throw BadSample("the file became shorter while it was read");
  } catch (const FileError& error) {
    throw BadSample(std::strerror(error.number()));
  }
}

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

/// The subfolders or the image files of a folder, in bytewise order.
std::vector<std::string> names_in(const fs::path& folder, bool folders) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) {
      note_progress();
      std::error_code unreadable;  // as for a link that leads to itself: then a sample is bad
      if (entry.is_directory(unreadable) == folders && (folders || is_image_name(entry.path())))
        names.push_back(entry.path().filename().string());
    }
  } catch (const fs::filesystem_error& error) {
    throw UserError(fmt::format("cannot list the folder {}: {}", folder.string(), error.code().message()),
                    ExitCode::data);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// What decoded images take of data.memory_limit. Training and evaluation data share it: they are in use together.
class ImageMemory {
 public:
  explicit ImageMemory(int64_t limit) : limit_(limit) {}
  bool is_full() const { return is_full_; }
  /// Whether so many bytes still fit; from the first that do not, the memory counts as full.
  bool take(int64_t bytes) {
    if (bytes_.fetch_add(bytes) + bytes <= limit_) return true;
    give_back(bytes);
    if (!is_full_.exchange(true))
      log_warning(
          "data.cache: memory is full; further images are read and decoded on each use, unless data.memory_limit is "
          "raised: {}",
          human_bytes(static_cast<double>(limit_)));
    return false;
  }
  void give_back(int64_t bytes) { bytes_.fetch_sub(bytes); }

 private:
  int64_t limit_;
  std::atomic<int64_t> bytes_{0};
  std::atomic<bool> is_full_{false};
};

/// Cache of decoded images. Each is written once and then only read.
class ImageCache {
 public:
  ImageCache(size_t count, std::shared_ptr<ImageMemory> memory) : images_(count), memory_(std::move(memory)) {}
  ~ImageCache() {
    for (auto& each : images_)
      if (const std::unique_ptr<const ImageU8> image{each.load()}) memory_->give_back(bytes_of(*image));
  }
  const std::shared_ptr<ImageMemory>& memory() const { return memory_; }
  const ImageU8* find(int64_t sample) const {
    return images_[static_cast<size_t>(sample)].load(std::memory_order_acquire);
  }
  void keep(int64_t sample, std::unique_ptr<const ImageU8> image) {
    const int64_t bytes = bytes_of(*image);
    if (!memory_->take(bytes)) return;
    const ImageU8* none = nullptr;
    if (images_[static_cast<size_t>(sample)].compare_exchange_strong(none, image.get(), std::memory_order_release))
      image.release();
    else
      memory_->give_back(bytes);  // another thread kept it meanwhile
  }

 private:
  static int64_t bytes_of(const ImageU8& image) { return image.size().height * image.size().width * 3; }

  std::vector<std::atomic<const ImageU8*>> images_;
  std::shared_ptr<ImageMemory> memory_;
};

class ImageFolder : public ImageDataset {
 public:
  ImageFolder(const std::string& path, const ImageFolderOptions& options)
      : root_(path), decode_(options.decode == DecodeKind::scaled ? DecodeSize::reduced : DecodeSize::full) {
    if (!fs::is_directory(root_))
      throw UserError(
          fmt::format("the data set's folder does not exist (relative paths start at the current folder): {}", path),
          ExitCode::data);
    const auto folders = names_in(root_, true);
    if (folders.empty())
      throw UserError(fmt::format("image_folder needs a folder for each class, but there is none: {}", path),
                      ExitCode::data);
    classes_ = options.training ? options.training->class_names() : folders;
    for (const auto& folder : folders) add_class(folder, options.training != nullptr);
    if (files_.empty()) throw UserError(fmt::format("the folder contains no images: {}", path), ExitCode::data);
    if (options.memory_limit > 0) cache_ = std::make_unique<ImageCache>(files_.size(), memory_for(options));
  }

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  int64_t num_classes() const override { return static_cast<int64_t>(classes_.size()); }
  int64_t label(int64_t sample) const override { return files_[static_cast<size_t>(sample)].label; }
  std::optional<ImageSize> uniform_size() const override { return std::nullopt; }
  const std::vector<std::string>& class_names() const override { return classes_; }
  std::string name_of(int64_t sample) const override {
    const auto& file = files_[static_cast<size_t>(sample)];
    return (root_ / classes_[static_cast<size_t>(file.label)] / file.name).string();
  }

  ImageSize size_of(int64_t sample, LoadScratch& scratch) const override {
    read(sample, scratch);
    decode_image(scratch.file, scratch.image.decoded);
    return scratch.image.decoded.size();
  }

  std::span<const uint8_t> file_of(int64_t sample, LoadScratch& scratch) const override {
    read(sample, scratch);
    return scratch.file;
  }

  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    if (const ImageU8* cached = cache_ ? cache_->find(sample) : nullptr)
      return pipeline.run(cached->view(), key, destination, scratch.image);
    read(sample, scratch);
    if (!cache_ || cache_->memory()->is_full())
      return pipeline.run_encoded(scratch.file, decode_, key, destination, scratch.image);
    auto image = std::make_unique<ImageU8>();
    {
      const StageTimer timer(scratch.image.times.decode_ns);
      decode_image(scratch.file, *image);
    }
    pipeline.run(image->view(), key, destination, scratch.image);
    cache_->keep(sample, std::move(image));
  }

 private:
  struct File {
    int64_t label;
    std::string name;
  };

  /// Hashes the names and order of all files, and the sizes and times of up to ten thousand evenly spaced ones: on
  /// network storage each costs a round trip.
  DataIdentity find_identity() const override {
    constexpr size_t kMaxSizes = 10000;
    XXH64_hash_t hash = 0;
    const auto add = [&](const void* data, size_t bytes) { hash = XXH3_64bits_withSeed(data, bytes, hash); };
    for (const auto& name : classes_) add(name.data(), name.size());
    for (const auto& file : files_) {
      add(&file.label, sizeof(file.label));
      add(file.name.data(), file.name.size());
    }
    const size_t sizes = std::min(kMaxSizes, files_.size());
    std::vector<BlockFile> asked;
    Checksum changed;
    for (size_t i = 0; i < sizes; ++i) {
      const std::string path = name_of(static_cast<int64_t>(i * files_.size() / sizes));
      const FileStatus status = status_of(path);
      add(&status.bytes, sizeof(status.bytes));
      changed.add(&status.changed_ns, sizeof(status.changed_ns));
      asked.push_back({path, std::max<int64_t>(0, status.bytes)});
    }
    DataIdentity identity{"image_folder", size(), num_classes(), fmt::format("{:016x}", hash)};
    const uint64_t key = block_key(identity);
    identity.blocks = hash_of_blocks(sizes == files_.size() ? draw_blocks(asked, key) : one_block_of_each_drawn(key));
    identity.versions = hex(changed.value());
    return identity;
  }

  /// A block of each image drawn among all; used if not all sizes are known.
  std::vector<BlockPlace> one_block_of_each_drawn(uint64_t key) const {
    std::vector<BlockPlace> places;
    const KeyedPermutation order(size(), key);
    for (int64_t i = 0; i < std::min(size(), kDrawnBlocks); ++i) {
      const std::string path = name_of(order(i));
      const BlockFile file{path, status_of(path).bytes};
      if (file.bytes > 0) places.push_back(draw_block(file, mix_key(key, static_cast<uint64_t>(i))));
    }
    return places;
  }

  static std::shared_ptr<ImageMemory> memory_for(const ImageFolderOptions& options) {
    const auto* training = dynamic_cast<const ImageFolder*>(options.training);
    if (training && training->cache_) return training->cache_->memory();
    return std::make_shared<ImageMemory>(options.memory_limit);
  }

  void add_class(const std::string& folder, bool has_fixed_classes) {
    const auto found = std::find(classes_.begin(), classes_.end(), folder);
    if (found == classes_.end())
      throw UserError(
          fmt::format("an evaluation class does not exist in the training data: {}", (root_ / folder).string()),
          ExitCode::data);
    const auto names = names_in(root_ / folder, false);
    if (names.empty() && !has_fixed_classes)
      throw UserError(fmt::format("a class has no images (*.jpg, *.jpeg, *.png); add some or remove its folder: {}",
                                  (root_ / folder).string()),
                      ExitCode::data);
    for (const auto& name : names) files_.push_back({found - classes_.begin(), name});
  }

  void read(int64_t sample, LoadScratch& scratch) const {
    const StageTimer timer(scratch.image.times.read_ns);
    read_into(name_of(sample), scratch.file);
  }

  fs::path root_;
  DecodeSize decode_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
  std::unique_ptr<ImageCache> cache_;
};

}  // namespace

std::shared_ptr<const ImageDataset> open_image_folder(const std::string& path, const ImageFolderOptions& options) {
  return std::make_shared<ImageFolder>(path, options);
}

}  // namespace trainopt
