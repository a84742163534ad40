#include "data/dataset.h"

#include "base/error.h"

#include <filesystem>

namespace trainopt {
namespace {

ImageFolderOptions folder_options(const DataConfig& data) {
  if (data.cache == CacheKind::memory && data.decode == DecodeKind::scaled)
    throw UserError(
        "data.cache: memory caches full-size images, which data.decode: scaled never produces; choose one of the two");
  return {.decode = data.decode, .keep_in_memory = data.cache == CacheKind::memory, .classes = std::nullopt};
}

std::string needed_path(const DataConfig& data, const char* kind) {
  if (!data.path) throw UserError(fmt::format("data.path must name the folder of {}", kind));
  return *data.path;
}

}  // namespace

const std::vector<std::string>& Dataset::class_names() const {
  static const std::vector<std::string> none;
  return none;
}

std::shared_ptr<const Dataset> open_training_data(const DataConfig& data, uint64_t seed) {
  switch (data.dataset) {
    case DatasetKind::fake_cifar10:
      return make_fake_cifar10(data.size, seed);
    case DatasetKind::cifar10:
      return read_cifar10(needed_path(data, "cifar10"));
    case DatasetKind::image_folder:
      return open_image_folder(needed_path(data, "image_folder"), folder_options(data));
    case DatasetKind::synthetic:
      return nullptr;
  }
  return nullptr;
}

std::shared_ptr<const Dataset> open_evaluation_data(const DataConfig& data, const std::optional<std::string>& path,
                                                    const Dataset* training) {
  if (data.dataset == DatasetKind::cifar10) {
    if (path) return read_cifar10_test(*path);
    const auto test = std::filesystem::path(needed_path(data, "cifar10")) / "test_batch.bin";
    return std::filesystem::exists(test) ? read_cifar10_test(test.string()) : nullptr;
  }
  if (!path) return nullptr;
  if (data.dataset != DatasetKind::image_folder)
    throw UserError(
        "evaluation.path needs data.dataset to be cifar10 or image_folder; the others have no evaluation data");
  TRAINOPT_CHECK(training != nullptr);
  auto options = folder_options(data);
  options.classes = training->class_names();
  return open_image_folder(*path, options);
}

}  // namespace trainopt
