#include "data/pack.h"

#include "base/error.h"
#include "base/files.h"
#include "base/mapped_file.h"
#include "data/image/png.h"
#include "data/packed/packed_writer.h"
#include "data/parquet/parquet_file.h"
#include "data/parquet/parquet_writer.h"
#include "data/shards.h"
#include "data/tar/tar_index.h"
#include "data/tar/tar_writer.h"

#include <ATen/Parallel.h>
#include <signal.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <memory>
#include <mutex>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

/// Images, and bytes of them, that are loaded at once, by all threads, and then written in order.
constexpr int64_t kMostAtOnce = 256, kBytesAtOnce = int64_t{256} << 20;

using Image = std::vector<uint8_t>;

/// One of the files to write.
struct Part {
  fs::path path;
  int64_t shard, begin, end;  ///< samples
  int64_t images() const { return end - begin; }
};

/// Loads images as they are to be stored.
class Source {
 public:
  Source(const ImageDataset& dataset, const PackOptions& options)
      : dataset_(dataset),
        options_(options),
        pipeline_(transforms(options.resize)),
        size_(pipeline_.output_size(dataset.uniform_size())) {
    const DataIdentity identity = dataset.identity();
    const std::string what = fmt::format("{} {} {} {} {}", identity.kind, identity.samples, identity.classes,
                                         identity.content, options.resize.value_or(0));
    hash_ = XXH3_64bits(what.data(), what.size());
  }

  const ImageDataset& dataset() const { return dataset_; }
  const PackOptions& options() const { return options_; }

  PackTrailer trailer(int64_t shard) const {
    PackTrailer about;
    about.kind = size_ ? PackKind::pixels : PackKind::files;
    if (size_) about.height = size_->height, about.width = size_->width;
    about.classes = dataset_.num_classes();
    about.source = hash_;
    about.shard = static_cast<uint32_t>(shard);
    about.shards = static_cast<uint32_t>(options_.shards);
    return about;
  }
  /// The same for a tar or Parquet file.
  std::string comment(int64_t shard) const {
    return fmt::format("trainopt {} shard {} of {}", hex(hash_), shard, options_.shards);
  }

  int64_t at_once() const {
    if (!size_) return kMostAtOnce;
    return std::clamp<int64_t>(kBytesAtOnce / (size_->height * size_->width * 3), 1, kMostAtOnce);
  }

  /// Throws BadSample.
  void load(int64_t sample, Image& bytes, LoadScratch& scratch) const {
    if (!size_) {
      const auto file = dataset_.file_of(sample, scratch);
      image_kind(file);  // JPEG or PNG
      bytes.assign(file.begin(), file.end());
      return;
    }
    bytes.resize(static_cast<size_t>(size_->height * size_->width * 3));
    dataset_.load(sample, /*key=*/0, pipeline_, {PixelFormat::u8_hwc, bytes.data(), size_->height, size_->width},
                  scratch);
    if (options_.format != PackFormat::packed)
      bytes = encode_png({bytes.data(), size_->height, size_->width, size_->width * 3});
  }

 private:
  static std::vector<TransformConfig> transforms(std::optional<int64_t> resize) {
    if (!resize) return {};
    return {ResizeConfig{.shorter_side = *resize}, CenterCropConfig{*resize, *resize}};
  }

  const ImageDataset& dataset_;
  const PackOptions& options_;
  Pipeline pipeline_;
  std::optional<ImageSize> size_;
  uint64_t hash_ = 0;
};

/// The bad sample that comes first in order, whichever thread found one first.
class FirstBad {
 public:
  void add(int64_t sample, const char* reason) {
    const std::lock_guard lock(mutex_);
    if (!found_ || sample < found_->first) found_ = {sample, reason};
  }
  void throw_if_any(const ImageDataset& dataset) const {
    if (!found_) return;
    throw UserError(fmt::format("cannot pack the image {}: {}", dataset.name_of(found_->first), found_->second),
                    ExitCode::data);
  }

 private:
  std::mutex mutex_;
  std::optional<std::pair<int64_t, std::string>> found_;
};

/// Loads samples [begin, end) with all threads.
void load_all(const Source& source, int64_t begin, int64_t end, std::vector<Image>& loaded) {
  FirstBad bad;
  at::parallel_for(begin, end, 1, [&](int64_t first, int64_t last) {
    LoadScratch scratch;
    for (int64_t sample = first; sample < last; ++sample) {
      try {
        source.load(sample, loaded[static_cast<size_t>(sample - begin)], scratch);
      } catch (const BadSample& why) {
        bad.add(sample, why.what());
      }
    }
  });
  bad.throw_if_any(source.dataset());
}

/// Whether the file holds these images. Throws UserError(data) if it cannot be read.
bool is_packed(const Source& source, const Part& part) {
  const PackedFile file(part.path);
  const PackTrailer &found = file.trailer(), wanted = source.trailer(part.shard);
  if (found.source != wanted.source || found.shard != wanted.shard || found.shards != wanted.shards ||
      file.size() != part.images())
    return false;
  try {
    std::vector<uint8_t> scratch;
    for (int64_t image = 0; image < file.size(); ++image) file.record(image, scratch);
  } catch (const BadSample& bad) {
    throw UserError(bad.what(), ExitCode::data);
  }
  return true;
}

bool is_tar(const Source& source, const Part& part) {
  const MappedFile file(part.path, ExitCode::data);
  const TarIndex index = tar_index(file.text(), part.path.string());
  return index.comment == source.comment(part.shard) && static_cast<int64_t>(index.samples.size()) == part.images();
}

bool is_parquet(const Source& source, const Part& part) {
  const ParquetFile file(open_local_file(part.path), ParquetConfig{.image = "image", .label = "label", .filter = {}},
                         std::numeric_limits<int64_t>::max());
  int64_t images = 0;
  for (const auto& group : file.groups()) images += group.rows;
  return file.layout().comment == source.comment(part.shard) && images == part.images();
}

bool is_of_packing(const Source& source, const Part& part) {
  switch (source.options().format) {
    case PackFormat::packed:
      return is_packed(source, part);
    case PackFormat::tar:
      return is_tar(source, part);
    case PackFormat::parquet:
      return is_parquet(source, part);
  }
  return false;
}

std::unique_ptr<ShardWriter> writer_of(const Source& source, const Part& part, File& file) {
  switch (source.options().format) {
    case PackFormat::packed:
      return std::make_unique<PackedWriter>(file, source.trailer(part.shard));
    case PackFormat::tar:
      return std::make_unique<TarWriter>(file, source.comment(part.shard));
    case PackFormat::parquet:
      return std::make_unique<ParquetShardWriter>(file, source.comment(part.shard));
  }
  return nullptr;
}

std::string_view ending_of(PackFormat format) {
  switch (format) {
    case PackFormat::packed:
      return kPackEnding;
    case PackFormat::tar:
      return kTarEnding;
    case PackFormat::parquet:
      return kParquetEnding;
  }
  return {};
}

/// Whether an earlier call completed this part. Throws UserError(data) if anything else is in its place.
bool is_there(const Source& source, const Part& part) {
  if (!fs::exists(fs::symlink_status(part.path))) return false;
  const auto refusal = [&](const std::string& why) {
    return UserError(fmt::format("{}; remove it, or choose another place: {}", why, part.path.string()),
                     ExitCode::data);
  };
  try {
    if (is_of_packing(source, part)) return true;
  } catch (const UserError& error) {
    throw refusal(fmt::format("a file is there that is not of this packing ({})", error.what()));
  }
  throw refusal("a file is there that was packed from other images, or with other options");
}

/// What a killed process left of this part.
void remove_leftovers(const fs::path& path) {
  if (!fs::is_directory(folder_of(path))) return;  // writing will say so
  const std::string start = path.filename().string() + ".";
  for (const auto& name : names_in_folder(folder_of(path), ExitCode::storage)) {
    if (!name.starts_with(start) || !name.ends_with(".tmp")) continue;
    pid_t writer = 0;
    const char* const end = name.data() + name.size() - std::string_view(".tmp").size();
    const auto parsed = std::from_chars(name.data() + start.size(), end, writer);
    if (parsed.ec == std::errc() && parsed.ptr == end && writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH)
      remove_file(folder_of(path) / name);
  }
}

void write(const Source& source, const Part& part, const std::function<void(int64_t)>& wrote) {
  const int64_t at_once = source.at_once();
  std::vector<Image> loaded(static_cast<size_t>(at_once));
  uint64_t checksum = 0;
  remove_leftovers(part.path);
  replace_file(part.path, [&](File& file) {
    const auto writer = writer_of(source, part, file);
    for (int64_t begin = part.begin; begin < part.end; begin += at_once) {
      const int64_t end = std::min(part.end, begin + at_once);
      load_all(source, begin, end, loaded);
      for (int64_t sample = begin; sample < end; ++sample)
        writer->add(sample, loaded[static_cast<size_t>(sample - begin)], source.dataset().label(sample));
      wrote(end - begin);
    }
    writer->finish(source.dataset().class_names());
    checksum = writer->checksum();
  });
  const MappedFile written(part.path, ExitCode::storage);
  if (XXH3_64bits(written.bytes().data(), written.bytes().size()) != checksum)
    throw UserError(fmt::format("the file differs from what was written to it: {}", part.path.string()),
                    ExitCode::storage);
}

}  // namespace

PackProgress pack(const ImageDataset& dataset, const fs::path& out, const PackOptions& options,
                  const std::function<void(const PackProgress&)>& report) {
  if (options.shards > dataset.size())
    throw UserError(
        fmt::format("there are more files (--shards) than images: {} and {}", options.shards, dataset.size()));
  if (options.shards > 1) create_folders(out);
  const Source source(dataset, options);
  const std::string_view ending = ending_of(options.format);
  PackProgress progress{.of = dataset.size()};
  const auto count = [&](int64_t images) {
    progress.images += images;
    report(progress);
  };
  for (int64_t shard = 0; shard < options.shards; ++shard) {
    const Part part{.path = options.shards == 1 ? out : out / shard_name(shard, options.shards, ending),
                    .shard = shard,
                    .begin = dataset.size() * shard / options.shards,
                    .end = dataset.size() * (shard + 1) / options.shards};
    if (is_there(source, part)) {
      ++progress.shards_found;
      count(part.images());
    } else {
      write(source, part, count);
    }
    progress.bytes += path_status(part.path, ExitCode::data).bytes;
  }
  return progress;
}

}  // namespace trainopt
