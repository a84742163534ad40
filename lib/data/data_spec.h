// Which samples a run sees, transformed how, in which order and pieces: all that decides what its batches contain.
#pragma once

#include "data/dataset.h"
#include "data/sample_loader.h"
#include "data/schedule.h"

#include <memory>
#include <vector>

namespace trainopt {

class DeviceDataset;

/// What is made where there is no data set: square images with random pixels and labels.
struct SyntheticImages {
  int64_t samples = 10000;  ///< in an epoch
  int64_t side = 224;       ///< pixels
  int64_t num_classes = 10;
};

struct DataSpec {
  DatasetKind kind = DatasetKind::fake_cifar10;
  std::shared_ptr<const Dataset> dataset;  ///< null for synthetic
  SyntheticImages synthetic;               ///< used then
  std::vector<TransformConfig> transforms;
  int64_t batch_size = 32;  ///< samples of a micro-batch on one rank
  bool shuffle = true;      ///< a new order each epoch; false: index order
  bool drop_last = true;    ///< leave out what does not fill a step at an epoch's end
  int64_t ranks = 1, rank = 0;
  int64_t accumulation = 1;  ///< micro-batches a step
  uint64_t seed = 0;         ///< of order, augmentation and synthetic images
  BadSamplePolicy bad_samples;
  /// Where the data set is kept whole, on the device, and batches are drawn from it; null: samples are loaded as they
  /// are needed.
  std::shared_ptr<DeviceDataset> device_dataset;

  int64_t samples() const { return dataset ? dataset->size() : synthetic.samples; }  ///< in an epoch
  BatchSchedule schedule() const;
  /// What must be the same for a run to resume.
  DataIdentity identity() const;
  /// As the model sees it. Throws UserError if images would differ in size.
  ImageSize image_size() const;
};

/// The recipe's data for one rank, its data set opened; synthetic images have `num_classes`. Throws UserError.
DataSpec open_data(const DataConfig& data, int64_t num_classes, uint64_t seed);

/// Of the images of `dataset` behind `pipeline`. Where sizes may differ and the transforms do not fix them, the first
/// readable image says what the others must be. Throws UserError(data) if none can be read.
ImageSize output_size(const Pipeline& pipeline, const Dataset& dataset);

}  // namespace trainopt
