#include "data/pack_source.h"

#include "base/checksum.h"
#include "data/image/decode.h"
#include "data/image/png.h"
#include "data/stream_order.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace trainopt {
namespace {

constexpr int64_t kMostAtOnce = 256, kBytesAtOnce = int64_t{256} << 20;

std::vector<TransformConfig> square(std::optional<int64_t> side) {
  if (!side) return {};
  return {ResizeConfig{.shorter_side = *side}, CenterCropConfig{*side, *side}};
}

}  // namespace

PackSource::PackSource(const ImageDataset& dataset, const PackOptions& options)
    : dataset_(dataset),
      options_(options),
      pipeline_(square(options.resize)),
      size_(pipeline_.output_size(dataset.uniform_size())) {
  const DataIdentity& identity = dataset.identity();
  const std::string what = fmt::format("{} {} {} {} {} {}", identity.kind, identity.samples, identity.classes,
                                       identity.content, identity.blocks, options.resize.value_or(0));
  hash_ = XXH3_64bits(what.data(), what.size());
  if (options.format == PackFormat::parquet) mix();
}

/// Readers of Parquet mix the rows of a few row groups, so classes must not come one after the other.
void PackSource::mix() {
  constexpr uint64_t kKey = 1;
  const auto runs = dataset_.runs();
  if (runs.empty())
    order_ = KeyedPermutation(dataset_.size(), kKey);
  else
    order_ = StreamOrder({.runs = {runs.begin(), runs.end()}, .partitions = 1, .step_samples = dataset_.size()}, kKey);
}

PackTrailer PackSource::trailer(int64_t shard) const {
  PackTrailer about;
  about.kind = size_ ? PackKind::pixels : PackKind::files;
  if (size_) about.height = size_->height, about.width = size_->width;
  about.classes = dataset_.num_classes();
  about.source = hash_;
  about.shard = static_cast<uint32_t>(shard);
  about.shards = static_cast<uint32_t>(options_.shards);
  return about;
}

std::string PackSource::comment(int64_t shard) const {
  return fmt::format("trainopt {} shard {} of {}", hex(hash_), shard, options_.shards);
}

int64_t PackSource::at_once() const {
  if (!size_) return kMostAtOnce;
  return std::clamp<int64_t>(kBytesAtOnce / (size_->height * size_->width * 3), 1, kMostAtOnce);
}

void PackSource::load(int64_t sample, Image& bytes, LoadScratch& scratch) const {
  if (!size_) {
    const auto file = dataset_.file_of(sample, scratch);
    image_kind(file);  // JPEG or PNG
    bytes.assign(file.begin(), file.end());
    return;
  }
  bytes.resize(static_cast<size_t>(size_->height * size_->width * 3));
  dataset_.load(sample, /*key=*/0, pipeline_, {PixelFormat::u8_hwc, bytes.data(), size_->height, size_->width},
                scratch);
  if (options_.format != PackFormat::packed)
    bytes = encode_png({bytes.data(), size_->height, size_->width, size_->width * 3});
}

}  // namespace trainopt
