#include "base/checksum.h"
#include "base/files/file_calls.h"
#include "base/files/file_kind.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/progress.h"
#include "base/units.h"
#include "data/dataset.h"
#include "data/identity.h"
#include "data/sampler.h"
#include "data/files/real_paths.h"
#include "data/files/splits.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>

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

constexpr std::array<std::string_view, 3> kImageEndings = {".jpg", ".jpeg", ".png"};

/// Calls `found` with each entry of a folder, and with whether it is a folder; links are followed.
template <class Found>
void for_each_entry(const fs::path& folder, Found found) {
  try {
    for (const auto& entry : fs::directory_iterator(folder)) {
      note_progress();
      std::error_code unreadable;
      const bool is_folder = entry.is_directory(unreadable);
      if (unreadable == std::errc::too_many_symbolic_link_levels && !has_ending(entry.path().string(), kImageEndings))
        throw UserError(fmt::format("a link leads to itself; remove it: {}", entry.path().string()), ExitCode::data);
      found(entry, is_folder);  // an image that cannot be read is a bad sample
    }
  } catch (const fs::filesystem_error& error) {
    throw UserError(fmt::format("cannot list the folder {}: {}", folder.string(), error.code().message()),
                    ExitCode::data);
  }
}

/// Whether a folder of this name is no part of a data set, although torchvision reads it.
bool is_foreign_folder(const std::string& name) { return name.starts_with('.') || name == "__MACOSX"; }

void leave_out(const fs::directory_entry& entry, const std::string& name, LeftOut& left_out) {
  std::error_code unreadable;
  if (entry.is_symlink(unreadable) && !entry.exists(unreadable))
    left_out.add("broken link", name);
  else
    left_out.add_file(name);
}

/// An image of a class, by its path below the class's folder.
struct ImageFile {
  std::string path;
  bool is_link = false;
};

/// The images of a class in torchvision's order, that of sorted(os.walk(folder, followlinks=True)): folder by folder,
/// bytewise by their whole paths.
class ClassWalk {
 public:
  /// `left_out`: what is not an image is added here, named from the class's folder on.
  ClassWalk(const fs::path& folder, LeftOut& left_out) : folder_(folder), left_out_(left_out) { walk(""); }

  std::vector<ImageFile> images() {
    std::vector<ImageFile> all;
    for (auto& [folder, images] : folders_) {
      std::sort(images.begin(), images.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
      std::move(images.begin(), images.end(), std::back_inserter(all));
    }
    return all;
  }
  /// Folders that are named like a split and nothing else.
  std::vector<std::string> split_folders() const {
    std::vector<std::string> names;
    for (const auto& [folder, images] : folders_)
      if (is_split_name(folder)) names.push_back(folder);
    return names;
  }

 private:
  /// `below`: a folder's path from the class's on; empty for the class's own.
  void walk(const std::string& below) {
    const fs::path folder = folder_ / below;
    std::error_code unreadable;  // listing it will say why
    open_.push_back(fs::canonical(folder, unreadable));
    std::vector<std::string> next;
    std::vector<ImageFile>& images = folders_[below];
    for_each_entry(folder, [&](const fs::directory_entry& entry, bool is_folder) {
      const std::string name = entry.path().filename().string(), path = below.empty() ? name : below + "/" + name;
      const std::string shown = (folder_.filename() / path).string();
      if (is_folder && is_foreign_folder(name))
        left_out_.add("hidden subfolder", shown, "torchvision reads its images");
      else if (is_folder)
        next.push_back(path);
      else if (has_ending(name, kImageEndings) && !is_apple_double(name))
        images.push_back({path, entry.is_symlink()});
      else
        leave_out(entry, shown, left_out_);
    });
    for (const std::string& path : next) {
      require_no_loop(folder_ / path);
      walk(path);
    }
    open_.pop_back();
  }

  /// A link to a folder that is being walked, or to one that it is in, would be walked for ever.
  void require_no_loop(const fs::path& link) const {
    if (!fs::is_symlink(link)) return;
    std::error_code unreadable;  // walking it will say why
    const fs::path target = fs::canonical(link, unreadable);
    const auto is_within = [&](const fs::path& folder) {
      return std::mismatch(target.begin(), target.end(), folder.begin(), folder.end()).first == target.end();
    };
    if (!unreadable && std::any_of(open_.begin(), open_.end(), is_within))
      throw UserError(fmt::format("a link leads back to a folder that it is in; remove it: {} -> {}", link.string(),
                                  target.string()),
                      ExitCode::data);
  }

  fs::path folder_;
  LeftOut& left_out_;
  std::map<std::string, std::vector<ImageFile>> folders_;
  std::vector<fs::path> open_;  ///< the real paths of the folders that are being walked, each in the one before
};

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
      : ImageDataset(options.decoding), root_(path) {
    require_folder();
    const auto folders = class_folders();
    classes_ = options.training ? options.training->class_names() : folders;
    for (const auto& name : classes_) labels_.emplace(name, std::ssize(labels_));
    require_known(folders);
    for (const auto& folder : folders) add_class(folder, options.training != nullptr);
    if (divided_classes_ == std::ssize(folders) && folders.size() == 1)
      throw UserError(fmt::format("the classes' folders are in those of the splits below {}; name them: {}",
                                  (root_ / folders.front()).string(), words_for(divided_)),
                      ExitCode::data);
    if (divided_classes_ == std::ssize(folders))
      throw UserError(
          fmt::format("each class has the images of several splits, such as {} and {}; move the splits above "
                      "the classes",
                      divided_.training, divided_.evaluation),
          ExitCode::data);
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
    return (root_ / classes_[static_cast<size_t>(file.label)] / file.path).string();
  }
  std::vector<uint64_t> file_hashes() const override {
    RealPaths real;
    std::vector<uint64_t> hashes;
    for (int64_t sample = 0; sample < size(); ++sample)
      hashes.push_back(real.hash_of(name_of(sample), files_[static_cast<size_t>(sample)].is_link));
    return hashes;
  }

  ImageSize size_of(int64_t sample, LoadScratch& scratch) const override {
    read(sample, scratch);
    return decoded_size(scratch.file, scratch);
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
      return load_file(sample, scratch.file, key, pipeline, destination, scratch);
    auto image = std::make_unique<ImageU8>();
    DecodeMemory::Hold hold;
    {
      const StageTimer timer(scratch.image.times.decode_ns);
      hold = decode_image(scratch.file, *image, decoding());
    }
    warn_if_very_large(sample, image->size());
    pipeline.run(image->view(), key, destination, scratch.image);
    cache_->keep(sample, std::move(image));
  }

 private:
  struct File {
    int64_t label;
    std::string path;  ///< below the class's folder
    bool is_link;
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
      add(file.path.data(), file.path.size());
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

  void require_folder() const {
    const PathKind kind = require_path(root_.string());
    if (kind == PathKind::folder) return;
    std::string_view what;
    if (kind == PathKind::file) {
      std::vector<uint8_t> start(kKindBytes);
      start.resize(trainopt::File::open(root_, ExitCode::data).read_at(0, start.data(), start.size()));
      what = what_it_is(start);
    }
    throw UserError(
        fmt::format("image_folder reads a folder, and this is {}: {}", what.empty() ? "a file" : what, root_.string()),
        ExitCode::data);
  }

  /// The folders of the classes, in bytewise order.
  std::vector<std::string> class_folders() {
    std::vector<std::string> folders;
    LeftOut images;
    for_each_entry(root_, [&](const fs::directory_entry& entry, bool is_folder) {
      const std::string name = entry.path().filename().string();
      if (is_folder && is_foreign_folder(name))
        found_.left_out.add(name.starts_with('.') ? "hidden folder" : "macOS folder", name,
                            "torchvision counts it as a class");
      else if (is_folder)
        folders.push_back(name);
      else if (has_ending(name, kImageEndings))
        images.add_file(name);
      else
        leave_out(entry, name, found_.left_out);
    });
    if (folders.empty() && !images.empty())
      throw UserError(
          fmt::format("image_folder needs a folder for each class, and the images are in {} itself: {}; move "
                      "those of each class to a folder of their own",
                      root_.string(), images.text()),
          ExitCode::data);
    found_.left_out.add(images);
    if (folders.empty())
      throw UserError(fmt::format("image_folder needs a folder for each class, but there is none: {}{}{}",
                                  root_.string(), found_.left_out.empty() ? "" : "; it has " + found_.left_out.text(),
                                  reader_hint(found_.left_out)),
                      ExitCode::data);
    std::sort(folders.begin(), folders.end());
    require_classes(folders);
    return folders;
  }

  /// The folders of the splits are no classes. They are known by their names, and by the folders of classes in them.
  void require_classes(const std::vector<std::string>& folders) const {
    std::vector<std::string> named;
    bool are_above_classes = false;
    for (const std::string& folder : folders) {
      const auto split = split_of(folder);
      if (split) named.push_back(folder + "/");
      are_above_classes = are_above_classes || (split == Split::train && has_folders_only(root_ / folder));
    }
    const bool are_all = std::all_of(folders.begin(), folders.end(), is_split_name);
    if (are_above_classes || are_all) require_one_split(root_.string(), named);
    if (folders.size() > 1 && are_all)
      throw UserError(fmt::format("the folders have the names of splits, not of classes; name one of them: {}: {}",
                                  first_of(folders), root_.string()),
                      ExitCode::data);
    if (folders.size() == 1 && (are_above_classes || are_all))
      throw UserError(
          fmt::format("the only folder has the name of a split, not of a class; name it itself if the classes' "
                      "folders are in it: data.path={}",
                      (root_ / folders.front()).string()),
          ExitCode::data);
  }

  static bool has_folders_only(const fs::path& folder) {
    bool has_folders = false, has_images = false;
    for_each_entry(folder, [&](const fs::directory_entry& entry, bool is_folder) {
      has_folders = has_folders || is_folder;
      has_images = has_images || (!is_folder && has_ending(entry.path().string(), kImageEndings));
    });
    return has_folders && !has_images;
  }

  void require_known(const std::vector<std::string>& folders) const {
    std::vector<std::string> unknown;
    for (const auto& folder : folders)
      if (!labels_.contains(folder)) unknown.push_back(folder);
    if (unknown.empty()) return;
    throw UserError(fmt::format("{} of the evaluation data {} not in the training data: {}: {}",
                                counted(std::ssize(unknown), "class", "es"), unknown.size() == 1 ? "is" : "are",
                                first_of(unknown), root_.string()),
                    ExitCode::data);
  }

  void add_class(const std::string& folder, bool has_fixed_classes) {
    const int64_t label = labels_.at(folder);
    LeftOut others;
    ClassWalk walk(root_ / folder, others);
    if (const auto splits = splits_in((root_ / folder).string(), walk.split_folders())) {
      ++divided_classes_;
      divided_ = *splits;
    }
    const auto images = walk.images();
    if (images.empty() && !has_fixed_classes)
      throw UserError(fmt::format("a class has no images (*.jpg, *.jpeg, *.png): {}{}{}", (root_ / folder).string(),
                                  others.empty() ? "" : "; it has " + others.text(), reader_hint(others)),
                      ExitCode::data);
    for (const auto& image : images) files_.push_back({label, image.path, image.is_link});
    found_.left_out.add(others);
  }

  void read(int64_t sample, LoadScratch& scratch) const {
    const StageTimer timer(scratch.image.times.read_ns);
    read_into(name_of(sample), scratch.file);
  }

  fs::path root_;
  std::vector<std::string> classes_;
  std::map<std::string, int64_t> labels_;  ///< by class
  std::vector<File> files_;
  int64_t divided_classes_ = 0;  ///< classes with the folders of several splits
  SplitPaths divided_;           ///< the last one's
  std::unique_ptr<ImageCache> cache_;
};

}  // namespace

std::shared_ptr<const ImageDataset> open_image_folder(const std::string& path, const ImageFolderOptions& options) {
  return std::make_shared<ImageFolder>(path, options);
}

}  // namespace trainopt
