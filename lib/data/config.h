// The `data` section of a recipe.
#pragma once

#include "config/describe.h"
#include "data/cache_config.h"
#include "data/files/data_paths.h"
#include "data/formats/parquet/config.h"
#include "data/formats/table.h"
#include "data/transform_config.h"
#include "storage/config.h"

namespace trainopt {

/// How wide a batch of documents is, in tokens.
enum class Padding { longest, max, bucket };
template <>
struct Choices<Padding> {
  static constexpr std::array all = {Choice<Padding>{"longest", Padding::longest}, Choice<Padding>{"max", Padding::max},
                                     Choice<Padding>{"bucket", Padding::bucket}};
};

enum class DecodeKind { exact, scaled };
template <>
struct Choices<DecodeKind> {
  static constexpr std::array all = {Choice<DecodeKind>{"exact", DecodeKind::exact},
                                     Choice<DecodeKind>{"scaled", DecodeKind::scaled}};
};

enum class OnBadSample { error, substitute };
template <>
struct Choices<OnBadSample> {
  static constexpr std::array all = {Choice<OnBadSample>{"error", OnBadSample::error},
                                     Choice<OnBadSample>{"substitute", OnBadSample::substitute}};
};

struct DataConfig {
  DatasetKind dataset = DatasetKind::fake_cifar10;
  std::optional<DataPaths> path;
  int64_t size = 10000;
  int64_t image_size = 224;
  int64_t batch_size = 32;
  std::optional<int64_t> global_batch_size;
  bool shuffle = true;
  bool drop_last = true;
  AutoOr<int64_t> num_workers = 0;
  int64_t prefetch_factor = 2;
  bool persistent_workers = false;
  bool pin_memory = false;
  bool non_blocking = false;
  Bytes memory_limit{int64_t{4} << 30};
  DecodeKind decode = DecodeKind::exact;
  int64_t max_pixels = 178956970;
  StorageConfig storage;
  CacheConfig cache;
  ParquetConfig parquet;
  int64_t partitions = 8;
  int64_t shuffle_window = 4096;
  std::vector<TransformConfig> transforms;
  std::optional<int64_t> token_bits;
  Padding padding = Padding::longest;
  bool warmup_largest = false;
  OnBadSample on_bad_sample = OnBadSample::error;
  int64_t max_bad_samples = 0;
};

/// How files are reached and kept, and the order of those that are read in runs.
template <class V>
void describe_files(V& v, DataConfig& c) {
  v.section("storage", c.storage, "Object storage, for a data.path that starts with s3://.");
  v.field("cache", c.cache,
          "Cache the data set: memory keeps image_folder's decoded images, parquet's row groups, or what was read of "
          "other files in object storage, on the host; device stores all images as uint8 on the device and draws "
          "batches there, including crops and flips; {kind: disk, path: …, size: …} keeps what was read from "
          "data.storage on a local disk.");
  v.section("parquet", c.parquet, "Columns and rows of parquet.");
  v.field("partitions", c.partitions,
          "parquet with shuffle: parts of the random order, from which each step draws equally. Ranks read only their "
          "own parts if ranks × accumulation divides this, and this divides the samples of a step.",
          in_range(1, 4096));
  v.field("shuffle_window", c.shuffle_window,
          "parquet with shuffle: samples that are mixed, over all partitions; their row groups are in memory together.",
          in_range(1, 1e9));
}

template <class V>
void describe(V& v, DataConfig& c) {
  v.field("dataset", c.dataset, "Data set to train on.");
  v.field("path", c.path, data_path_text());
  v.field("size", c.size, "Samples per epoch of fake_cifar10 and synthetic.", in_range(1, 1e12));
  v.field("image_size", c.image_size, "Side length of synthetic images in pixels.", in_range(1, 16384));
  v.field("batch_size", c.batch_size, "Samples per rank and micro-batch.", in_range(1, 1 << 24),
          alias("per_device_train_batch_size", "micro_batch_size", "train_micro_batch_size_per_gpu"));
  v.field("global_batch_size", c.global_batch_size,
          "Samples per step over all ranks and micro-batches; null: derived from the other settings.",
          in_range(1, 1e12), alias("train_batch_size"));
  v.field("shuffle", c.shuffle, "Use a new random order in each epoch; false: index order.");
  v.field("drop_last", c.drop_last,
          "Skip the last samples of an epoch if they do not fill a step; false: take a shorter last step.", any(),
          alias("dataloader_drop_last"));
  v.field("num_workers", c.num_workers,
          "Loader threads; 0: load in the training thread; auto: the number that loads fastest, measured when the run "
          "starts.",
          in_range(0, 1024), alias("dataloader_num_workers", "workers"));
  v.field("prefetch_factor", c.prefetch_factor, "Batches prefetched per worker.", in_range(1, 1024),
          alias("dataloader_prefetch_factor"));
  v.field("persistent_workers", c.persistent_workers,
          "Keep the threads alive and continue prefetching across the end of an epoch.", any(),
          alias("dataloader_persistent_workers"));
  v.field("pin_memory", c.pin_memory,
          "Allocate batch buffers in page-locked memory, which a GPU can copy from directly.", any(),
          alias("dataloader_pin_memory", "pin_mem"));
  v.field("non_blocking", c.non_blocking, "Copy on a second stream while the step runs; needs pin_memory.");
  v.field("memory_limit", c.memory_limit,
          "Memory limit, in each process, of the batch buffers and the images being decoded; on the CPU also of the "
          "data set with cache: device. parquet: also of the row groups in memory; image_folder, other remote files: "
          "also of cache: memory.",
          at_least(1));
  v.field("decode", c.decode,
          "JPEG decoding: exact gives Pillow's pixels; scaled decodes at reduced size (faster, different pixels).");
  v.field(
      "max_pixels", c.max_pixels,
      "Pixels of the largest JPEG or PNG file that is decoded; larger ones are bad samples. The default is Pillow's "
      "limit; an image of more than half of it is warned about.",
      at_least(1));
  describe_files(v, c);
  v.field("transforms", c.transforms, "Transforms applied to each image, in order, as torchvision defines them.");
  v.field("token_bits", c.token_bits,
          "tokens, documents: bits of a token in a file without llm.c's header, 16 or 32; null: 16.", in_range(16, 32));
  v.field("padding", c.padding,
          "documents: tokens of a batch's rows. longest: of its longest document; max: model.context; bucket: the next "
          "power of two, at least 16. Padding counts in no loss.");
  v.field("warmup_largest", c.warmup_largest,
          "documents: run forward and backward on the largest possible batch before the first step, so that later "
          "batches find the memory they need.");
  v.field("on_bad_sample", c.on_bad_sample,
          "Handling of an unreadable sample: error ends the run; substitute logs it and uses another sample; an "
          "evaluation leaves it out.");
  v.field("max_bad_samples", c.max_bad_samples,
          "Number of different bad samples that each rank may meet before the run ends; evaluation data counts apart.",
          at_least(0));
}

}  // namespace trainopt
