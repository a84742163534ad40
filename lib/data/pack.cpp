#include "data/pack.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/files/files.h"
#include "base/files/mapped_file.h"
#include "data/formats/packed/packed_writer.h"
#include "data/formats/parquet/parquet_file.h"
#include "data/formats/parquet/parquet_writer.h"
#include "data/formats/shards.h"
#include "data/formats/tar/tar_index.h"
#include "data/formats/tar/tar_writer.h"
#include "data/image/decode.h"
#include "data/image/png.h"
#include "data/stream_order.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <signal.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <memory>
#include <mutex>
#include <set>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

/// One of the files to write.
struct Part {
  fs::path path;
  int64_t shard, begin, end;  ///< places
  int64_t images() const { return end - begin; }
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

/// Loads what is stored at [begin, end), with all threads.
void load_all(const PackSource& source, int64_t begin, int64_t end, std::vector<PackSource::Image>& loaded) {
  FirstBad bad;
  at::parallel_for(begin, end, 1, [&](int64_t first, int64_t last) {
    LoadScratch scratch;
    for (int64_t place = first; place < last; ++place) {
      const int64_t sample = source.sample_at(place);
      try {
        source.load(sample, loaded[static_cast<size_t>(place - begin)], scratch);
      } catch (const BadSample& why) {
        bad.add(sample, why.what());
      }
    }
  });
  require_mapped_files_whole();
  bad.throw_if_any(source.dataset());
}

/// Whether the file holds these images. Throws UserError(data) if it cannot be read.
bool is_packed(const PackSource& source, const Part& part) {
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

bool is_tar(const PackSource& source, const Part& part) {
  const MappedFile file(part.path, ExitCode::data);
  const TarIndex index = tar_index(file.text(), part.path.string());
  file.require_whole();
  return index.comment == source.comment(part.shard) && static_cast<int64_t>(index.samples.size()) == part.images();
}

bool is_parquet(const PackSource& source, const Part& part) {
  const ParquetFile file(open_local_file(part.path), ParquetConfig{.image = "image", .label = "label", .filter = {}},
                         std::numeric_limits<int64_t>::max());
  if (file.layout().comment != source.comment(part.shard) || file.layout().rows != part.images()) return false;
  try {
    for (size_t group = 0; group < file.groups().size(); ++group) file.read(static_cast<int64_t>(group));
  } catch (const BadSample& bad) {
    throw UserError(bad.what(), ExitCode::data);
  }
  return true;
}

bool is_of_packing(const PackSource& source, const Part& part) {
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

std::unique_ptr<ShardWriter> writer_of(const PackSource& source, const Part& part, File& file) {
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
bool is_there(const PackSource& source, const Part& part) {
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

/// A folder is read whole, so files of another packing beside the new ones would be read too.
void refuse_other_files(const fs::path& folder, int64_t shards, std::string_view ending) {
  std::set<std::string> ours;
  for (int64_t shard = 0; shard < shards; ++shard) ours.insert(shard_name(shard, shards, ending));
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ending && !ours.contains(entry->path().filename().string()))
      throw UserError(fmt::format("the folder has a file of another packing, which would be read too; remove it, or "
                                  "choose another folder: {}",
                                  entry->path().string()),
                      ExitCode::data);
  if (error)
    throw UserError(fmt::format("cannot list the folder {}: {}", folder.string(), error.message()), ExitCode::data);
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

void write(const PackSource& source, const Part& part, const std::function<void(int64_t)>& wrote) {
  const int64_t at_once = source.at_once();
  std::vector<PackSource::Image> loaded(static_cast<size_t>(at_once));
  uint64_t checksum = 0;
  remove_leftovers(part.path);
  replace_file(part.path, [&](File& file) {
    const auto writer = writer_of(source, part, file);
    for (int64_t begin = part.begin; begin < part.end; begin += at_once) {
      const int64_t end = std::min(part.end, begin + at_once);
      load_all(source, begin, end, loaded);
      for (int64_t place = begin; place < end; ++place)
        writer->add(place, loaded[static_cast<size_t>(place - begin)], source.dataset().label(source.sample_at(place)));
      wrote(end - begin);
    }
    writer->finish(source.dataset().class_names());
    checksum = writer->checksum();
  });
  const MappedFile written(part.path, ExitCode::storage);
  const bool is_same = XXH3_64bits(written.bytes().data(), written.bytes().size()) == checksum;
  written.require_whole();
  if (!is_same)
    throw UserError(fmt::format("the file differs from what was written to it: {}", part.path.string()),
                    ExitCode::storage);
}

}  // namespace

PackProgress pack(const ImageDataset& dataset, const fs::path& out, const PackOptions& options,
                  const std::function<void(const PackProgress&)>& report) {
  if (options.shards > dataset.size())
    throw UserError(
        fmt::format("there are more files (--shards) than images: {} and {}", options.shards, dataset.size()));
  const std::string_view ending = ending_of(options.format);
  if (options.shards > 1) {
    create_folders(out);
    refuse_other_files(out, options.shards, ending);
  }
  const PackSource source(dataset, options);
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

namespace {

constexpr int64_t kMostAtOnce = 256, kBytesAtOnce = int64_t{256} << 20;

std::vector<TransformConfig> square(std::optional<int64_t> side) {
  if (!side) return {};
  return {ResizeConfig{.shorter_side = *side}, CenterCropConfig{*side, *side}};
}

}  // namespace

PackSource::PackSource(const ImageDataset& dataset, const PackOptions& options)
    : dataset_(dataset),
      options_(options),
      pipeline_(square(options.resize)),
      size_(pipeline_.output_size(dataset.uniform_size())) {
  const DataIdentity& identity = dataset.identity();
  const std::string what = fmt::format("{} {} {} {} {} {}", identity.kind, identity.samples, identity.classes,
                                       identity.content, identity.blocks, options.resize.value_or(0));
  hash_ = XXH3_64bits(what.data(), what.size());
  if (options.format == PackFormat::parquet) mix();
}

/// Readers of Parquet mix the rows of a few row groups, so classes must not come one after the other.
void PackSource::mix() {
  constexpr uint64_t kKey = 1;
  const auto runs = dataset_.runs();
  if (runs.empty())
    order_ = KeyedPermutation(dataset_.size(), kKey);
  else
    order_ = StreamOrder({.runs = {runs.begin(), runs.end()}, .partitions = 1, .step_samples = dataset_.size()}, kKey);
}

PackTrailer PackSource::trailer(int64_t shard) const {
  PackTrailer about;
  about.kind = size_ ? PackKind::pixels : PackKind::files;
  if (size_) about.height = size_->height, about.width = size_->width;
  about.classes = dataset_.num_classes();
  about.source = hash_;
  about.shard = static_cast<uint32_t>(shard);
  about.shards = static_cast<uint32_t>(options_.shards);
  return about;
}

std::string PackSource::comment(int64_t shard) const {
  return fmt::format("trainopt {} shard {} of {}", hex(hash_), shard, options_.shards);
}

int64_t PackSource::at_once() const {
  if (!size_) return kMostAtOnce;
  return std::clamp<int64_t>(kBytesAtOnce / (size_->height * size_->width * 3), 1, kMostAtOnce);
}

void PackSource::load(int64_t sample, Image& bytes, LoadScratch& scratch) const {
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

}  // namespace trainopt
