// The images that `trainopt data pack` writes, as they are to be stored.
#pragma once

#include "data/pack.h"
#include "data/packed/packed_file.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// Safe to use from many threads.
class PackSource {
 public:
  using Image = std::vector<uint8_t>;

  PackSource(const ImageDataset& dataset, const PackOptions& options);

  const ImageDataset& dataset() const { return dataset_; }
  const PackOptions& options() const { return options_; }
  /// By which a packed file, and by which a tar or Parquet file, is known to be of this packing.
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
