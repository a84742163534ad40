#include "data/dataset.h"

#include "base/error.h"
#include "base/file_calls.h"
#include "data/cifar10_file.h"
#include "data/shards.h"
#include "data/text/text_dataset.h"

#include <algorithm>
#include <filesystem>

namespace trainopt {
namespace {

ImageFolderOptions folder_options(const DataConfig& data) {
  if (data.cache == CacheKind::memory && data.decode == DecodeKind::scaled)
    throw UserError(
        "data.cache: memory caches full-size images, which data.decode: scaled never produces; choose one of the two");
  return {.decode = data.decode, .keep_in_memory = data.cache == CacheKind::memory, .classes = std::nullopt};
}

std::string needed_path(const DataConfig& data) {
  if (!data.path) throw UserError(fmt::format("data.path must name the data of {}", word_of(data.dataset)));
  return *data.path;
}

std::shared_ptr<const TextDataset> open_text(const DataConfig& data, const ModelNeeds& model, const std::string& path) {
  if (model.context == 0)
    throw UserError(fmt::format("data.dataset: {} is text, which needs a language model", word_of(data.dataset)));
  const TextOptions options{.context = model.context, .vocabulary = model.vocabulary, .token_bits = data.token_bits};
  return data.dataset == DatasetKind::tokens ? open_token_windows(path, options) : open_documents(path, options);
}

}  // namespace

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

std::shared_ptr<const ImageDataset> open_images(const std::string& path) {
  namespace fs = std::filesystem;
  const auto names = fs::is_directory(path) ? names_in_folder(path, ExitCode::data) : std::vector<std::string>{path};
  const auto ends_in = [](std::string_view ending) {
    return [ending](const fs::path& name) { return name.extension() == ending; };
  };
  const auto has = [&](const auto& fits) { return std::any_of(names.begin(), names.end(), fits); };
  if (has(ends_in(kPackEnding))) return open_packed(path, {});
  if (has(ends_in(kTarEnding))) return open_tar(path, DecodeKind::exact);
  if (has(has_cifar10_name)) return read_cifar10(path);
  return open_image_folder(path, {});
}

std::shared_ptr<const Dataset> open_training_data(const DataConfig& data, const ModelNeeds& model, uint64_t seed) {
  switch (data.dataset) {
    case DatasetKind::fake_cifar10:
      return make_fake_cifar10(data.size, seed);
    case DatasetKind::cifar10:
      return read_cifar10(needed_path(data));
    case DatasetKind::image_folder:
      return open_image_folder(needed_path(data), folder_options(data));
    case DatasetKind::packed:
      return open_packed(needed_path(data), {.decode = data.decode, .training = nullptr});
    case DatasetKind::tar:
      return open_tar(needed_path(data), data.decode);
    case DatasetKind::tokens:
    case DatasetKind::documents:
      return open_text(data, model, needed_path(data));
    case DatasetKind::synthetic:
      return nullptr;
  }
  return nullptr;
}

std::shared_ptr<const Dataset> open_evaluation_data(const DataConfig& data, const ModelNeeds& model,
                                                    const std::optional<std::string>& path, const Dataset* training) {
  if (data.dataset == DatasetKind::cifar10) {
    if (path) return read_cifar10_test(*path);
    const auto test = std::filesystem::path(needed_path(data)) / "test_batch.bin";
    return std::filesystem::exists(test) ? read_cifar10_test(test.string()) : nullptr;
  }
  if (!path) return nullptr;
  if (is_text(data.dataset)) return open_text(data, model, *path);
  if (!reads_files(data.dataset))
    throw UserError(
        fmt::format("evaluation.path needs a data.dataset that is read from files: {}", word_of(data.dataset)));
  if (data.dataset == DatasetKind::tar) return open_tar(*path, data.decode);
  const auto* images = dynamic_cast<const ImageDataset*>(training);
  TRAINOPT_CHECK(images != nullptr);
  if (data.dataset == DatasetKind::packed) return open_packed(*path, {.decode = data.decode, .training = images});
  auto options = folder_options(data);
  options.classes = images->class_names();
  return open_image_folder(*path, options);
}

}  // namespace trainopt
