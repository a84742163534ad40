#include "data/dataset.h"

#include "base/error.h"
#include "base/files/file_calls.h"
#include "base/files/mapped_file.h"
#include "base/json.h"
#include "base/log.h"
#include "config/load.h"
#include "data/formats/cifar10_file.h"
#include "data/formats/shards.h"
#include "data/files/real_paths.h"
#include "data/formats/text/text_dataset.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>

namespace trainopt {
namespace {

/// Remote data that is open in this process, by what it is. The plans that a run compares differ elsewhere, and should
/// not each ask the server for every object again.
template <class T>
class OpenedOnce {
 public:
  template <class Open>
  std::shared_ptr<T> get(const std::string& key, Open open) {
    const std::lock_guard lock(mutex_);
    if (auto opened = opened_[key].lock()) return opened;
    auto opened = open();
    opened_[key] = opened;
    return opened;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<T>> opened_;
};

/// The data set at these paths; a remote one is opened once.
template <class Open>
std::shared_ptr<const Dataset> opened(const DataConfig& data, const ModelNeeds& model, const DataPaths& paths,
                                      const DataFiles* files, Open open) {
  if (!paths.is_remote() || !files) {
    auto dataset = open();
    require_mapped_files_whole();
    return dataset;
  }
  static OpenedOnce<const Dataset> all;
  // The training data is in it because evaluation data must have its classes.
  return all.get(fmt::format("{} {} {} {} {} {} {} {} {}", word_of(data.dataset), word_of(data.decode),
                             data.token_bits.value_or(0), model.context, model.vocabulary, files->number(),
                             data.memory_limit.count, word_of(data.cache.kind),
                             Json{to_json(data.parquet), data.shuffle, data.shuffle_window, data.partitions,
                                  data.max_pixels, data.path.value_or(DataPaths()).all, paths.all}
                                 .dump(-1, ' ', false, Json::error_handler_t::replace)),
                 open);
}

/// What a data set is opened with.
struct OpenRequest {
  const DataConfig& data;
  const ModelNeeds& model;
  DataPaths paths = {};
  std::shared_ptr<DataFiles> files = nullptr;
  uint64_t seed = 0;
  const ImageDataset* training = nullptr;  ///< whose classes evaluation data must have
  bool evaluates = false;
};
using Opened = std::shared_ptr<const Dataset>;

DecodeOptions decoding_of(const OpenRequest& request) {
  const DataConfig& data = request.data;
  return {.size = data.decode == DecodeKind::scaled ? DecodeSize::reduced : DecodeSize::full,
          .max_pixels = data.max_pixels,
          .memory = request.training ? request.training->decoding().memory
                                     : std::make_shared<DecodeMemory>(data.memory_limit.count)};
}

Opened open_fake(const OpenRequest& request) { return make_fake_cifar10(request.data.size, request.seed); }

Opened open_cifar10(const OpenRequest& request) {
  const std::string& path = request.paths.only("cifar10");
  return request.evaluates ? read_cifar10_test(path) : read_cifar10(path);
}

Opened open_folder(const OpenRequest& request) {
  const DataConfig& data = request.data;
  const bool keeps = data.cache == CacheKind::memory;
  if (keeps && data.decode == DecodeKind::scaled)
    throw UserError(
        "data.cache: memory caches full-size images, which data.decode: scaled never produces; choose one of the two");
  TRAINOPT_CHECK(!request.evaluates || request.training != nullptr);
  return open_image_folder(request.paths.only("image_folder"), {.decoding = decoding_of(request),
                                                                .memory_limit = keeps ? data.memory_limit.count : 0,
                                                                .training = request.training});
}

Opened open_packed_files(const OpenRequest& request) {
  return open_packed(request.paths,
                     {.decoding = decoding_of(request), .training = request.training, .files = request.files});
}

Opened open_tar_files(const OpenRequest& request) {
  return open_tar(request.paths, decoding_of(request), request.files);
}

Opened open_parquet_files(const OpenRequest& request) {
  const DataConfig& data = request.data;
  return open_parquet(request.paths, {.decoding = decoding_of(request),
                                      .columns = data.parquet,
                                      .memory_limit = data.memory_limit.count,
                                      .keep_in_memory = data.cache == CacheKind::memory,
                                      .window = data.shuffle ? data.shuffle_window : 1,
                                      .partitions = data.shuffle ? data.partitions : 1,
                                      .training = request.training,
                                      .files = request.files});
}

template <auto open>
Opened open_text(const OpenRequest& request) {
  if (request.model.context == 0)
    throw UserError(
        fmt::format("data.dataset: {} is text, which needs a language model", word_of(request.data.dataset)));
  return open(request.paths, TextOptions{.context = request.model.context,
                                         .vocabulary = request.model.vocabulary,
                                         .token_bits = request.data.token_bits,
                                         .files = request.files});
}

Opened open_nothing(const OpenRequest&) { return nullptr; }

/// How each format of the table is opened.
struct FormatOpener {
  DatasetKind kind;
  Opened (*open)(const OpenRequest&);
};
constexpr std::array kOpeners = {FormatOpener{DatasetKind::fake_cifar10, open_fake},
                                 FormatOpener{DatasetKind::cifar10, open_cifar10},
                                 FormatOpener{DatasetKind::image_folder, open_folder},
                                 FormatOpener{DatasetKind::packed, open_packed_files},
                                 FormatOpener{DatasetKind::tar, open_tar_files},
                                 FormatOpener{DatasetKind::parquet, open_parquet_files},
                                 FormatOpener{DatasetKind::tokens, open_text<open_token_windows>},
                                 FormatOpener{DatasetKind::documents, open_text<open_documents>},
                                 FormatOpener{DatasetKind::synthetic, open_nothing}};
static_assert(std::ranges::equal(kOpeners, kDataFormats, {}, &FormatOpener::kind, &DataFormat::kind));

Opened open_request(const OpenRequest& request) {
  const auto opener = std::find_if(kOpeners.begin(), kOpeners.end(),
                                   [&](const FormatOpener& each) { return each.kind == request.data.dataset; });
  TRAINOPT_CHECK(opener != kOpeners.end());
  const auto open = [&] { return opener->open(request); };
  if (!format_of(request.data.dataset).one_file) return open();
  return opened(request.data, request.model, request.paths, request.files.get(), open);
}

void require_readable(const DataConfig& data, const DataPaths& paths) {
  const DataFormat& format = format_of(data.dataset);
  if (format.remote || !paths.is_remote()) return;
  throw UserError(fmt::format(
      "data.dataset: {} is read from this machine's files only; {}: {}", format.word,
      format.text ? "tokens may be in object storage" : "make packed or tar files of it with `trainopt data pack`",
      paths.text()));
}

const DataPaths& needed_paths(const DataConfig& data) {
  if (!data.path) throw UserError(fmt::format("data.path must name the data of {}", word_of(data.dataset)));
  require_readable(data, *data.path);
  return *data.path;
}

/// What kind of images are at these paths, by the names of the files.
DatasetKind kind_of_images(const DataPaths& paths, DataFiles& files) {
  std::vector<std::string_view> endings;
  for (const DataFormat& format : kDataFormats)
    if (!format.ending.empty()) endings.push_back(format.ending);
  const std::string& path = paths.all.front();
  const std::vector<std::string> names = names_at(files, path, endings);
  for (const DataFormat& format : kDataFormats)
    if (!format.ending.empty() &&
        std::any_of(names.begin(), names.end(), [&](const auto& name) { return has_ending(name, format.ending); }))
      return format.kind;
  if (is_remote(path)) return DatasetKind::packed;  // the only ones that object storage may have without an ending
  return std::any_of(names.begin(), names.end(), has_cifar10_name) ? DatasetKind::cifar10 : DatasetKind::image_folder;
}

}  // namespace

const DataIdentity& Dataset::identity() const {
  std::call_once(identity_found_, [this] { identity_ = find_identity(); });
  return identity_;
}

const std::vector<std::string>& Dataset::note(FoundFiles found) {
  found_ = std::move(found);
  return found_.files;
}

std::vector<uint64_t> Dataset::file_hashes() const {
  RealPaths real;
  std::vector<uint64_t> hashes;
  for (const std::string& file : found_.files) hashes.push_back(real.hash_of(file));
  return hashes;
}

const std::vector<std::string>& ImageDataset::class_names() const {
  static const std::vector<std::string> none;
  return none;
}

std::span<const uint8_t> ImageDataset::file_of(int64_t, LoadScratch&) const { return {}; }

void ImageDataset::write(int64_t sample, uint64_t key, const Pipeline& pipeline, const SamplePlace& place,
                         LoadScratch& scratch) const {
  load(sample, key, pipeline, place.image, scratch);
  *place.target = label(sample);
}

void ImageDataset::load_file(int64_t sample, std::span<const uint8_t> bytes, uint64_t key, const Pipeline& pipeline,
                             const Destination& destination, LoadScratch& scratch) const {
  std::call_once(whole_made_, [this] { whole_ = SampleMarks(size()); });
  const bool is_known = whole_.has(sample);
  const ImageSize file =
      pipeline.run_encoded(bytes, decoding_, is_known ? ReadTo::part : ReadTo::end, key, destination, scratch.image);
  if (is_known) return;
  whole_.add(sample);
  warn_if_very_large(sample, file);
}

void ImageDataset::warn_if_very_large(int64_t sample, ImageSize size) const {
  if (size.height * size.width <= kManyPixels || !decoding_.memory || !decoding_.memory->is_first_very_large()) return;
  log_warning(
      "a very large image, which takes long to decode: {}x{} pixels (width x height); data.max_pixels would refuse it, "
      "and others are not named: {}",
      size.width, size.height, name_of(sample));
}

ImageSize ImageDataset::decoded_size(std::span<const uint8_t> bytes, LoadScratch& scratch) const {
  const auto hold = decode_image(bytes, scratch.image.decoded, decoding_);
  return scratch.image.decoded.size();
}

std::shared_ptr<DataFiles> local_data_files() {
  return std::make_shared<DataFiles>(StorageConfig(), FileCaches(), Variables());
}

std::shared_ptr<DataFiles> data_files(const DataConfig& data, const Variables& variables) {
  FileCaches caches;
  if (data.cache == CacheKind::disk)
    caches.disk = DiskCacheOptions{
        .folder = data.cache.path.value(), .size = data.cache.size.value().count, .verify = data.cache.verify};
  if (data.cache == CacheKind::memory && !format_of(data.dataset).row_groups)  // those are kept themselves
    caches.memory = data.memory_limit.count;
  static OpenedOnce<DataFiles> all;
  const auto words = Json{to_json(data.storage), to_json(data.cache), data.memory_limit.count, variables};
  return all.get(words.dump(-1, ' ', false, Json::error_handler_t::replace),
                 [&] { return std::make_shared<DataFiles>(data.storage, caches, variables); });
}

std::shared_ptr<const ImageDataset> open_images(const DataPaths& paths, std::shared_ptr<DataFiles> files,
                                                const ParquetConfig& columns) {
  if (!files) files = local_data_files();
  DataConfig data;
  data.dataset = kind_of_images(paths, *files);
  data.parquet = columns;
  data.memory_limit.count = std::numeric_limits<int64_t>::max();  // without a recipe there is no limit of memory either
  if ((columns.image || columns.label) && !format_of(data.dataset).row_groups)
    throw UserError(fmt::format("only Parquet files have columns to name (--image, --label): {}", paths.text()));
  return std::dynamic_pointer_cast<const ImageDataset>(
      open_request({.data = data, .model = ModelNeeds(), .paths = paths, .files = std::move(files)}));
}

std::shared_ptr<const Dataset> open_training_data(const DataConfig& data, const ModelNeeds& model, uint64_t seed,
                                                  std::shared_ptr<DataFiles> files) {
  const DataPaths paths = format_of(data.dataset).files ? needed_paths(data) : DataPaths();
  return open_request({.data = data, .model = model, .paths = paths, .files = std::move(files), .seed = seed});
}

std::shared_ptr<const Dataset> open_evaluation_data(const DataConfig& data, const ModelNeeds& model,
                                                    const std::optional<DataPaths>& paths, const Dataset* training,
                                                    std::shared_ptr<DataFiles> files) {
  const DataFormat& format = format_of(data.dataset);
  if (paths) require_readable(data, *paths);
  if (!paths && format.test_file.empty()) return nullptr;
  const DataPaths where =
      paths ? *paths : std::filesystem::path(needed_paths(data).only(format.word)) / format.test_file;
  if (!paths && kind_of(where.all.front()) == PathKind::absent) return nullptr;
  if (!format.files)
    throw UserError(
        fmt::format("evaluation.path needs a data.dataset that is read from files: {}", word_of(data.dataset)));
  return open_request({.data = data,
                       .model = model,
                       .paths = where,
                       .files = std::move(files),
                       .training = dynamic_cast<const ImageDataset*>(training),
                       .evaluates = true});
}

}  // namespace trainopt
