// Where samples come from: numbered images with labels, each a pure function of its number.
#pragma once

#include "data/config.h"
#include "data/identity.h"
#include "data/image/pipeline.h"

#include <memory>
#include <string>
#include <vector>

namespace trainopt {

/// What one thread reuses from sample to sample.
struct LoadScratch {
  PipelineScratch image;
  std::vector<uint8_t> file;
  int64_t read_ns = 0;  ///< time spent reading files, counted up
};

/// Safe to use from many threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual int64_t num_classes() const = 0;
  virtual int64_t label(int64_t sample) const = 0;
  /// Of every image, or nullopt where they may differ.
  virtual std::optional<ImageSize> uniform_size() const = 0;
  /// Of this image. Throws BadSample.
  virtual ImageSize size_of(int64_t sample, LoadScratch& scratch) const = 0;
  /// Writes the transformed image to `destination`. `key`: of the random transforms' draws. Throws BadSample.
  virtual void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
                    LoadScratch& scratch) const = 0;
  /// For messages: the file, or the record in it.
  virtual std::string name_of(int64_t sample) const = 0;
  /// May look at many files (image_folder: at most ten thousand): not for every step.
  virtual DataIdentity identity() const = 0;
  /// Names in the order of their labels; empty where classes have none.
  virtual const std::vector<std::string>& class_names() const;
};

/// fake_cifar10: random 32×32 images and labels; image i depends on seed and i alone.
std::shared_ptr<const Dataset> make_fake_cifar10(int64_t size, uint64_t seed);

/// The binary version of CIFAR-10. `path`: a folder with any of data_batch_1.bin … data_batch_5.bin, or one such file.
/// Throws UserError(data) for a missing folder, a size that is not whole records, or a label above 9.
std::shared_ptr<const Dataset> read_cifar10(const std::string& path);
/// The same, but a folder's test_batch.bin is preferred.
std::shared_ptr<const Dataset> read_cifar10_test(const std::string& path);

struct ImageFolderOptions {
  DecodeKind decode = DecodeKind::exact;
  bool keep_in_memory = false;  ///< decoded images, filled as they are first used, up to half of the machine's memory
  std::optional<std::vector<std::string>> classes;  ///< whose numbers to use; null: the folders in bytewise order
};
/// image_folder: `path` has a folder for each class with *.jpg, *.jpeg and *.png files (any case). Throws
/// UserError(data) if there are no classes, a class without images, or one that `classes` lacks.
std::shared_ptr<const Dataset> open_image_folder(const std::string& path, const ImageFolderOptions& options);

/// The data set of a recipe; null for `synthetic`, which has none. Throws UserError.
std::shared_ptr<const Dataset> open_training_data(const DataConfig& data, uint64_t seed);
/// `path`: evaluation.path. Null where there is nothing to evaluate on. Classes are numbered as in `training`.
std::shared_ptr<const Dataset> open_evaluation_data(const DataConfig& data, const std::optional<std::string>& path,
                                                    const Dataset* training);

}  // namespace trainopt
