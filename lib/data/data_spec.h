// Everything that determines what a run's batches contain: samples, transforms, order, and division into batches.
#pragma once

#include "data/dataset.h"
#include "data/sample_loader.h"
#include "data/schedule.h"

#include <memory>
#include <vector>

namespace trainopt {

class DeviceDataset;

/// Used when there is no data set: square images with random pixels and labels.
struct SyntheticImages {
  int64_t samples = 10000;  ///< per epoch
  int64_t side = 224;       ///< pixels
  int64_t num_classes = 10;
};

struct DataSpec {
  DatasetKind kind = DatasetKind::fake_cifar10;
  std::shared_ptr<const Dataset> dataset;  ///< null for synthetic
  SyntheticImages synthetic;               ///< used if `dataset` is null
  std::vector<TransformConfig> transforms;
  int64_t batch_size = 32;  ///< samples of a micro-batch on one rank
  bool shuffle = true;      ///< a new order each epoch; false: index order
  bool drop_last = true;    ///< skip the samples at an epoch's end that do not fill a step
  int64_t ranks = 1, rank = 0;
  int64_t accumulation = 1;  ///< micro-batches per step
  uint64_t seed = 0;         ///< of order, augmentation and synthetic images
  BadSamplePolicy bad_samples;
  /// The complete data set on the device, from which batches are drawn; null: samples are loaded as needed.
  std::shared_ptr<DeviceDataset> device_dataset;

  int64_t samples() const { return dataset ? dataset->size() : synthetic.samples; }  ///< per epoch
  BatchSchedule schedule() const;
  /// Must be unchanged for a run to resume.
  DataIdentity identity() const;
  /// Size of the images that the model receives. Throws UserError if images would differ in size.
  ImageSize image_size() const;
};

/// Opens the recipe's data set and describes its data for one rank; synthetic images have `num_classes`. Throws
/// UserError.
DataSpec open_data(const DataConfig& data, int64_t num_classes, uint64_t seed);

/// Size of the images of `dataset` after `pipeline`. If sizes may differ and the transforms do not fix them, the first
/// readable one of the first 100 images determines the size that all must have. Throws UserError(data) if none can be
/// read.
ImageSize output_size(const Pipeline& pipeline, const Dataset& dataset);

}  // namespace trainopt
