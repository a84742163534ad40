#include "data/dataset.h"

#include "base/error.h"
#include "base/files/file_calls.h"
#include "base/files/mapped_file.h"
#include "base/json.h"
#include "config/load.h"
#include "data/formats/cifar10_file.h"
#include "data/formats/shards.h"
#include "data/formats/text/text_dataset.h"

#include <algorithm>
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

/// The data set at `path`; a remote one is opened once.
template <class Open>
std::shared_ptr<const Dataset> opened(const DataConfig& data, const ModelNeeds& model, const std::string& path,
                                      const DataFiles* files, Open open) {
  if (!is_remote(path) || !files) {
    auto dataset = open();
    require_mapped_files_whole();
    return dataset;
  }
  static OpenedOnce<const Dataset> all;
  // The training data is in it because evaluation data must have its classes.
  return all.get(fmt::format("{} {} {} {} {} {} {} {} {} {}\n{}", word_of(data.dataset), word_of(data.decode),
                             data.token_bits.value_or(0), model.context, model.vocabulary, files->number(),
                             data.memory_limit.count, word_of(data.cache.kind),
                             Json{to_json(data.parquet), data.shuffle, data.shuffle_window, data.partitions}.dump(),
                             data.path.value_or(""), path),
                 open);
}

ImageFolderOptions folder_options(const DataConfig& data) {
  if (data.cache == CacheKind::memory && data.decode == DecodeKind::scaled)
    throw UserError(
        "data.cache: memory caches full-size images, which data.decode: scaled never produces; choose one of the two");
  return {.decode = data.decode, .memory_limit = data.cache == CacheKind::memory ? data.memory_limit.count : 0};
}

void require_readable_kind(const DataConfig& data, const std::string& path) {
  const bool is_local = data.dataset == DatasetKind::cifar10 || data.dataset == DatasetKind::image_folder;
  if (is_local && is_remote(path))
    throw UserError(
        fmt::format("{} is read from local folders only; make packed or tar files of it with `trainopt data pack`: {}",
                    word_of(data.dataset), path));
}

std::string needed_path(const DataConfig& data) {
  if (!data.path) throw UserError(fmt::format("data.path must name the data of {}", word_of(data.dataset)));
  require_readable_kind(data, *data.path);
  return *data.path;
}

std::shared_ptr<const TextDataset> open_text(const DataConfig& data, const ModelNeeds& model, const std::string& path,
                                             std::shared_ptr<DataFiles> files) {
  if (model.context == 0)
    throw UserError(fmt::format("data.dataset: {} is text, which needs a language model", word_of(data.dataset)));
  const TextOptions options{.context = model.context,
                            .vocabulary = model.vocabulary,
                            .token_bits = data.token_bits,
                            .files = std::move(files)};
  return data.dataset == DatasetKind::tokens ? open_token_windows(path, options) : open_documents(path, options);
}

/// The kinds that may be in object storage. `training`: whose classes packed evaluation data must have.
std::shared_ptr<const Dataset> open_storable(const DataConfig& data, const ModelNeeds& model, const std::string& path,
                                             const Dataset* training, std::shared_ptr<DataFiles> files) {
  const auto* images = dynamic_cast<const ImageDataset*>(training);
  if (data.dataset == DatasetKind::parquet)
    return open_parquet(path, {.decode = data.decode,
                               .columns = data.parquet,
                               .memory_limit = data.memory_limit.count,
                               .keep_in_memory = data.cache == CacheKind::memory,
                               .window = data.shuffle ? data.shuffle_window : 1,
                               .partitions = data.shuffle ? data.partitions : 1,
                               .training = images,
                               .files = std::move(files)});
  if (data.dataset == DatasetKind::tar) return open_tar(path, data.decode, std::move(files));
  if (is_text(data.dataset)) return open_text(data, model, path, std::move(files));
  return open_packed(path, {.decode = data.decode, .training = images, .files = std::move(files)});
}

/// What kind of images are at `path`, by the names of the files.
DatasetKind kind_of_images(const std::string& path, DataFiles& files) {
  namespace fs = std::filesystem;
  if (is_remote(path)) {
    if (!files.find(kTarEnding, path).empty()) return DatasetKind::tar;
    return files.find(kParquetEnding, path).empty() ? DatasetKind::packed : DatasetKind::parquet;
  }
  const auto names = fs::is_directory(path) ? names_in_folder(path, ExitCode::data) : std::vector<std::string>{path};
  const auto ends_in = [](std::string_view ending) {
    return [ending](const fs::path& name) { return name.extension() == ending; };
  };
  const auto has = [&](const auto& fits) { return std::any_of(names.begin(), names.end(), fits); };
  if (has(ends_in(kPackEnding))) return DatasetKind::packed;
  if (has(ends_in(kTarEnding))) return DatasetKind::tar;
  if (has(ends_in(kParquetEnding))) return DatasetKind::parquet;
  return has(has_cifar10_name) ? DatasetKind::cifar10 : DatasetKind::image_folder;
}

}  // namespace

const DataIdentity& Dataset::identity() const {
  std::call_once(identity_found_, [this] { identity_ = find_identity(); });
  return identity_;
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

std::shared_ptr<DataFiles> local_data_files() {
  return std::make_shared<DataFiles>(StorageConfig(), FileCaches(), Variables());
}

std::shared_ptr<DataFiles> data_files(const DataConfig& data, const Variables& variables) {
  FileCaches caches;
  if (data.cache == CacheKind::disk)
    caches.disk = DiskCacheOptions{
        .folder = data.cache.path.value(), .size = data.cache.size.value().count, .verify = data.cache.verify};
  if (data.cache == CacheKind::memory && data.dataset != DatasetKind::parquet)  // which keeps its row groups
    caches.memory = data.memory_limit.count;
  static OpenedOnce<DataFiles> all;
  const auto words = Json{to_json(data.storage), to_json(data.cache), data.memory_limit.count, variables};
  return all.get(words.dump(-1, ' ', false, Json::error_handler_t::replace),
                 [&] { return std::make_shared<DataFiles>(data.storage, caches, variables); });
}

std::shared_ptr<const ImageDataset> open_images(const std::string& path, std::shared_ptr<DataFiles> files,
                                                const ParquetConfig& columns) {
  if (!files) files = local_data_files();
  const DatasetKind kind = kind_of_images(path, *files);
  if ((columns.image || columns.label) && kind != DatasetKind::parquet)
    throw UserError(fmt::format("only Parquet files have columns to name (--image, --label): {}", path));
  if (kind == DatasetKind::packed) return open_packed(path, {.files = std::move(files)});
  if (kind == DatasetKind::tar) return open_tar(path, DecodeKind::exact, std::move(files));
  if (kind == DatasetKind::cifar10) return read_cifar10(path);
  if (kind == DatasetKind::image_folder) return open_image_folder(path, {});
  // Without a recipe there is no limit of memory either.
  return open_parquet(
      path, {.columns = columns, .memory_limit = std::numeric_limits<int64_t>::max(), .files = std::move(files)});
}

std::shared_ptr<const Dataset> open_training_data(const DataConfig& data, const ModelNeeds& model, uint64_t seed,
                                                  std::shared_ptr<DataFiles> files) {
  switch (data.dataset) {
    case DatasetKind::fake_cifar10:
      return make_fake_cifar10(data.size, seed);
    case DatasetKind::cifar10:
      return read_cifar10(needed_path(data));
    case DatasetKind::image_folder:
      return open_image_folder(needed_path(data), folder_options(data));
    case DatasetKind::packed:
    case DatasetKind::tar:
    case DatasetKind::parquet:
    case DatasetKind::tokens:
    case DatasetKind::documents:
      return opened(data, model, needed_path(data), files.get(),
                    [&] { return open_storable(data, model, *data.path, nullptr, files); });
    case DatasetKind::synthetic:
      return nullptr;
  }
  return nullptr;
}

std::shared_ptr<const Dataset> open_evaluation_data(const DataConfig& data, const ModelNeeds& model,
                                                    const std::optional<std::string>& path, const Dataset* training,
                                                    std::shared_ptr<DataFiles> files) {
  if (path) require_readable_kind(data, *path);
  if (data.dataset == DatasetKind::cifar10) {
    if (path) return read_cifar10_test(*path);
    const auto test = std::filesystem::path(needed_path(data)) / "test_batch.bin";
    return std::filesystem::exists(test) ? read_cifar10_test(test.string()) : nullptr;
  }
  if (!path) return nullptr;
  if (is_text(data.dataset) || data.dataset == DatasetKind::tar || data.dataset == DatasetKind::packed ||
      data.dataset == DatasetKind::parquet)
    return opened(data, model, *path, files.get(), [&] { return open_storable(data, model, *path, training, files); });
  if (!reads_files(data.dataset))
    throw UserError(
        fmt::format("evaluation.path needs a data.dataset that is read from files: {}", word_of(data.dataset)));
  auto options = folder_options(data);
  options.training = dynamic_cast<const ImageDataset*>(training);
  TRAINOPT_CHECK(options.training != nullptr);
  return open_image_folder(*path, options);
}

}  // namespace trainopt
