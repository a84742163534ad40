#include "data/image/pipeline.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace trainopt {

namespace {

Normalization normalization_of(const std::vector<TransformConfig>& transforms) {
  Normalization normalization;
  for (size_t i = 0; i < transforms.size(); ++i) {
    const auto* config = std::get_if<NormalizeConfig>(&transforms[i]);
    if (!config) continue;
    if (i + 1 != transforms.size())
      throw UserError("transforms: normalize must be the last transform and can appear only once");
    for (int channel = 0; channel < 3; ++channel) {
      normalization.mean[channel] = static_cast<float>(config->mean[channel]);
      normalization.std[channel] = static_cast<float>(config->std[channel]);
      if (!std::isfinite(normalization.mean[channel])) throw UserError("transform normalize: mean must be finite");
      if (!(normalization.std[channel] > 0 && std::isfinite(normalization.std[channel])))
        throw UserError(fmt::format("transform normalize: std must be above 0: {}", config->std[channel]));
    }
  }
  return normalization;
}

/// The largest reduction at which the part to be resized is still at least as large as the result.
int reduction_for(const Stage& stage) {
  for (const int reduction : {8, 4, 2})
    if (stage.source.height / reduction >= stage.resized.height &&
        stage.source.width / reduction >= stage.resized.width)
      return reduction;
  return 1;
}

/// `source` in coordinates of the reduced image, rounded to whole pixels.
Rect reduced(const Rect& source, int reduction, ImageSize image) {
  const auto scale = [&](int64_t value) { return (value + reduction / 2) / reduction; };
  const int64_t top = std::min(scale(source.top), image.height - 1),
                left = std::min(scale(source.left), image.width - 1);
  return {top, left, std::clamp<int64_t>(scale(source.bottom()) - top, 1, image.height - top),
          std::clamp<int64_t>(scale(source.right()) - left, 1, image.width - left)};
}

/// Frees a large image's pixels when it is destroyed.
class LargeFreed {
 public:
  explicit LargeFreed(ImageU8& image) : image_(image) {}
  ~LargeFreed() {
    if (image_.allocated_bytes() >= kLargeDecode) image_ = {};
  }
  LargeFreed(const LargeFreed&) = delete;
  LargeFreed& operator=(const LargeFreed&) = delete;

 private:
  ImageU8& image_;
};

/// Counts the buffer that the thread keeps for smaller images.
void count_kept(PipelineScratch& scratch, const std::shared_ptr<DecodeMemory>& memory) {
  const int64_t bytes = scratch.decoded.allocated_bytes();
  if (bytes >= kLargeDecode || bytes <= scratch.kept_bytes) return;
  scratch.kept = DecodeMemory::reserve(memory, bytes);
  scratch.kept_bytes = bytes;
}

}  // namespace

Pipeline::Pipeline(const std::vector<TransformConfig>& transforms)
    : geometry_(transforms), normalization_(normalization_of(transforms)) {}

void Pipeline::run(const ImageView& image, uint64_t sample_key, const Destination& destination,
                   PipelineScratch& scratch) const {
  run_stages({image, 0, 0}, geometry_.stages({image.height, image.width}, sample_key), destination, scratch);
}

ImageSize Pipeline::run_encoded(std::span<const uint8_t> file, const DecodeOptions& options, ReadTo to,
                                uint64_t sample_key, const Destination& destination, PipelineScratch& scratch) const {
  DecodeMemory::Hold hold;  // outlives the pixels that it counts
  const LargeFreed freed(scratch.decoded);
  const Decoded decoded = decode(file, options, to, sample_key, scratch, hold);
  count_kept(scratch, options.memory);
  run_stages(decoded.input, decoded.stages, destination, scratch);
  return decoded.file;
}

Pipeline::Decoded Pipeline::decode(std::span<const uint8_t> file, const DecodeOptions& options, ReadTo to,
                                   uint64_t sample_key, PipelineScratch& scratch, DecodeMemory::Hold& hold) const {
  const StageTimer timer(scratch.times.decode_ns);
  if (image_kind(file) != ImageKind::jpeg) {
    hold = decode_image(file, scratch.decoded, options);
    const ImageSize size = scratch.decoded.size();
    return {size, {scratch.decoded.view(), 0, 0}, geometry_.stages(size, sample_key)};
  }
  JpegReader reader(file, options.max_pixels);
  hold = hold_for(reader.bytes_to_decode(), options);
  std::vector<Stage> stages = geometry_.stages(reader.size(), sample_key);
  Stage& first = stages.front();
  const int reduction = options.size == DecodeSize::reduced ? reduction_for(first) : 1;
  if (reduction > 1) first.source = reduced(first.source, reduction, reader.reduced_size(reduction));
  const Rect needed = needed_input(first, scratch.resample.tables);
  const InputRegion input = reader.read(needed, reduction, scratch.decoded, to);
  return {reader.size(), input, std::move(stages)};
}

void Pipeline::run_stages(InputRegion input, const std::vector<Stage>& stages, const Destination& destination,
                          PipelineScratch& scratch) const {
  const StageTimer timer(scratch.times.transform_ns);
  const Rect& last = stages.back().window;
  if (last.height != destination.height || last.width != destination.width)
    throw SizeMismatch(fmt::format(
        "the image is {}x{} after the transforms but must be {}x{} like the first one (height x width); a resize to "
        "[height, width] or a crop gives all one size",
        last.height, last.width, destination.height, destination.width));
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    ImageU8& intermediate = scratch.intermediate[i % 2];
    intermediate.set_size({stages[i].window.height, stages[i].window.width});
    resample(input, stages[i], normalization_,
             {PixelFormat::u8_hwc, intermediate.row(0), intermediate.size().height, intermediate.size().width},
             scratch.resample);
    input = {intermediate.view(), 0, 0};
  }
  resample(input, stages.back(), normalization_, destination, scratch.resample);
}

}  // namespace trainopt
