// `trainopt data pack`: writes the images of a data set to one file or several.
#pragma once

#include "data/dataset.h"
#include "data/formats/packed/packed_file.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

enum class PackFormat { packed, tar, parquet };

struct PackOptions {
  PackFormat format = PackFormat::packed;
  /// Null: images keep their size. Else they are stored as squares with this side: the shorter side is resized to it
  /// and the centre cut out, as torchvision's Resize and CenterCrop do.
  std::optional<int64_t> resize;
  int64_t shards = 1;
};

struct PackProgress {
  int64_t images = 0, of = 0;  ///< written or found so far, of all
  int64_t shards_found = 0;    ///< shards complete before this call
  int64_t bytes = 0;           ///< the files' size so far
};

/// Writes `dataset` to the file `out`, or with several shards to `out`/00000-of-00064.pack and so on, each of which is
/// complete or absent, whatever happens. Shards that an earlier call with the same source and options completed are
/// kept. JPEG and PNG files are stored as they are, unless they are to be resized. Other images are stored as pixels,
/// in tar and Parquet files as PNG. Every file is read back and compared with what was written. `report` is called
/// after each few hundred images. Throws UserError(data) for an image that cannot be used, and for a file at the same
/// place that is not of this packing; UserError(storage) if writing fails.
PackProgress pack(const ImageDataset& dataset, const std::filesystem::path& out, const PackOptions& options,
                  const std::function<void(const PackProgress&)>& report);

// The images that `trainopt data pack` writes, as they are to be stored.

/// Safe to use from many threads.
class PackSource {
 public:
  using Image = std::vector<uint8_t>;

  PackSource(const ImageDataset& dataset, const PackOptions& options);

  const ImageDataset& dataset() const { return dataset_; }
  const PackOptions& options() const { return options_; }
  /// What shows a packed file, and a tar or Parquet file, to be of this packing.
  PackTrailer trailer(int64_t shard) const;
  std::string comment(int64_t shard) const;

  /// How many images should be loaded together, by all threads, and then written in order.
  int64_t at_once() const;
  /// The sample that is stored at this place.
  int64_t sample_at(int64_t place) const { return order_ ? order_(place) : place; }
  /// Throws BadSample.
  void load(int64_t sample, Image& bytes, LoadScratch& scratch) const;

 private:
  void mix();

  const ImageDataset& dataset_;
  const PackOptions& options_;
  Pipeline pipeline_;
  std::optional<ImageSize> size_;  ///< null: images are stored as the files that they are
  uint64_t hash_ = 0;
  std::function<int64_t(int64_t)> order_;  ///< empty: places are samples
};

}  // namespace trainopt
