// Everything that determines what a run's batches contain: samples, transforms, order, and division into batches.
#pragma once

#include "data/dataset.h"
#include "data/sample_loader.h"
#include "data/sampler.h"
#include "data/schedule.h"
#include "data/token_counts.h"

#include <memory>
#include <vector>

namespace trainopt {

class DeviceDataset;

/// Used when there is no data set: square images with random pixels and labels, or random tokens.
struct SyntheticData {
  int64_t samples = 10000;  ///< per epoch
  int64_t side = 224;       ///< pixels
  int64_t num_classes = 10;
  int64_t vocabulary = 0;  ///< random tokens are below this
};

struct DataSpec {
  DatasetKind kind = DatasetKind::fake_cifar10;
  std::shared_ptr<const Dataset> dataset;  ///< null for synthetic
  std::shared_ptr<DataFiles> files;        ///< the data set is read through these
  SyntheticData synthetic;                 ///< used if `dataset` is null
  int64_t context = 0;                     ///< tokens of a sample, at most; 0: the samples are images
  Padding padding = Padding::longest;      ///< how documents are padded
  bool warmup_largest = false;             ///< the first step is preceded by a pass over largest_batch()
  std::vector<TransformConfig> transforms;
  int64_t batch_size = 32;                        ///< samples of a micro-batch on one rank
  bool shuffle = true;                            ///< a new order each epoch; false: index order
  int64_t partitions = 8, shuffle_window = 4096;  ///< settings of an order in runs (stream_order.h)
  bool drop_last = true;                          ///< skip the samples at an epoch's end that do not fill a step
  LastBatch last_batch = LastBatch::keep;         ///< what becomes of a short micro-batch at an epoch's end
  int64_t ranks = 1, rank = 0;
  int64_t accumulation = 1;  ///< micro-batches per step
  uint64_t seed = 0;         ///< determines order, augmentation and synthetic images
  BadSamplePolicy bad_samples;
  /// The complete data set on the device, from which batches are drawn; null: samples are loaded as needed.
  std::shared_ptr<DeviceDataset> device_dataset;

  int64_t samples() const { return dataset ? dataset->size() : synthetic.samples; }  ///< per epoch
  bool is_text() const { return context > 0; }
  /// Whether micro-batches of documents may differ in length, or in weight.
  bool micro_batches_vary() const {
    return format_of(kind).pads && (padding != Padding::max || ranks * accumulation > 1);
  }
  // The data set if it is of this kind, null if not.
  const ImageDataset* images() const;
  std::shared_ptr<const TextDataset> text() const;
  BatchSchedule schedule() const;
  Sampler sampler() const;
  /// Must be unchanged for a run to resume.
  DataIdentity identity() const;
  /// Size of the images that the model receives. Not for text. Throws UserError if images would differ in size.
  ImageSize image_size() const;
};

/// Opens the recipe's data set and describes its data for one rank. `variables`: AWS_… and HOME. Throws UserError.
DataSpec open_data(const DataConfig& data, const ModelNeeds& model, uint64_t seed, const Variables& variables = {});

/// Size of the images of `dataset` after `pipeline`. If sizes may differ and the transforms do not fix them, the first
/// readable one of the first 100 images determines the size that all must have. Throws UserError(data) if none can be
/// read.
ImageSize output_size(const Pipeline& pipeline, const ImageDataset& dataset);

/// Text: the most tokens that a row of a batch can have.
int64_t largest_width(const DataSpec& data);

}  // namespace trainopt
