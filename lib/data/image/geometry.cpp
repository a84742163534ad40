#include "data/image/geometry.h"

#include "base/error.h"
#include "base/philox.h"
#include "data/image/decode.h"

#include <algorithm>
#include <cmath>

namespace trainopt {

namespace {

/// The largest side that a transform can ask for.
constexpr int64_t kMaxSide = 16384;

/// Rounds like Python's round(): halves go to the even neighbour.
int64_t round_half_even(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

void check_side(const char* transform, int64_t side) {
  if (side < 1 || side > kMaxSide)
    throw UserError(fmt::format("transform {}: a size must be from 1 to {}: {}", transform, kMaxSide, side));
}

void check(const TransformConfig& transform) {
  if (const auto* resize = std::get_if<ResizeConfig>(&transform)) {
    if (resize->shorter_side) return check_side("resize", *resize->shorter_side);
    check_side("resize", resize->exact.first);
    check_side("resize", resize->exact.second);
  } else if (const auto* center = std::get_if<CenterCropConfig>(&transform)) {
    check_side("center_crop", center->height);
    check_side("center_crop", center->width);
  } else if (const auto* crop = std::get_if<RandomCropConfig>(&transform)) {
    check_side("random_crop", crop->height);
    check_side("random_crop", crop->width);
    if (crop->padding < 0 || crop->padding > kMaxSide)
      throw UserError(fmt::format("transform random_crop: padding must be from 0 to {}: {}", kMaxSide, crop->padding));
  } else if (const auto* random = std::get_if<RandomResizedCropConfig>(&transform)) {
    check_side("random_resized_crop", random->height);
    check_side("random_resized_crop", random->width);
    const auto& [scale, ratio] = std::pair(random->scale, random->ratio);
    if (!(scale[0] > 0 && scale[0] <= scale[1] && std::isfinite(scale[1])))
      throw UserError(
          fmt::format("transform random_resized_crop: scale must be two fractions above 0 in ascending order: {}, {}",
                      scale[0], scale[1]));
    if (!(ratio[0] > 0 && ratio[0] <= ratio[1] && std::isfinite(ratio[1])))
      throw UserError(
          fmt::format("transform random_resized_crop: ratio must be two numbers above 0 in ascending order: {}, {}",
                      ratio[0], ratio[1]));
  } else if (const auto* flip = std::get_if<RandomHorizontalFlipConfig>(&transform)) {
    if (!(flip->p >= 0 && flip->p <= 1))
      throw UserError(fmt::format("transform random_horizontal_flip: p must be from 0 to 1: {}", flip->p));
  }
}

/// As torchvision's _compute_resized_output_size: the longer side is truncated to an integer, not rounded.
ImageSize resized_size(const ResizeConfig& resize, ImageSize input) {
  if (!resize.shorter_side) return {resize.exact.first, resize.exact.second};
  const int64_t shorter = *resize.shorter_side;
  const auto longer = [&](int64_t long_side, int64_t short_side) {
    return static_cast<int64_t>(static_cast<double>(shorter * long_side) / static_cast<double>(short_side));
  };
  return input.width <= input.height ? ImageSize{longer(input.height, input.width), shorter}
                                     : ImageSize{shorter, longer(input.width, input.height)};
}

/// As torchvision's RandomResizedCrop.get_params: ten attempts, then the largest central crop within the ratios.
Rect random_resized_crop(const RandomResizedCropConfig& config, ImageSize input, PhiloxStream& random) {
  const double area = static_cast<double>(input.height * input.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target_area = area * random.next_uniform(config.scale[0], config.scale[1]);
    const double ratio = std::exp(random.next_uniform(std::log(config.ratio[0]), std::log(config.ratio[1])));
    const int64_t width = round_half_even(std::sqrt(target_area * ratio));
    const int64_t height = round_half_even(std::sqrt(target_area / ratio));
    if (width < 1 || width > input.width || height < 1 || height > input.height) continue;
    const int64_t top = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(input.height - height + 1)));
    const int64_t left = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(input.width - width + 1)));
    return {top, left, height, width};
  }
  const double input_ratio = static_cast<double>(input.width) / static_cast<double>(input.height);
  int64_t height = input.height, width = input.width;
  // A ratio far from the image's can round to zero pixels, on which torchvision fails.
  if (input_ratio < config.ratio[0]) {
    height = std::max<int64_t>(round_half_even(static_cast<double>(width) / config.ratio[0]), 1);
  } else if (input_ratio > config.ratio[1]) {
    width = std::max<int64_t>(round_half_even(static_cast<double>(height) * config.ratio[1]), 1);
  }
  return {(input.height - height) / 2, (input.width - width) / 2, height, width};
}

/// The stages of an image; the last one can still absorb further transforms.
class Stages {
 public:
  explicit Stages(ImageSize input) : stages_{full_image(input)} {}

  ImageSize size() const { return {last().window.height, last().window.width}; }

  /// `crop` is in coordinates of the current image; parts outside it become zeros.
  void crop(const Rect& crop) {
    Stage& stage = stages_.back();
    // A flipped window counts its columns from the right.
    const int64_t left = stage.flip ? stage.window.right() - crop.right() : stage.window.left + crop.left;
    // From now on only the part inside the old window is valid, even if a later pad would uncover more of the image.
    stage.valid = intersection(stage.valid, stage.window);
    stage.window = {stage.window.top + crop.top, left, crop.height, crop.width};
  }

  void flip() { stages_.back().flip = !last().flip; }

  void resize(ImageSize to) {
    if (to == size()) return;
    const Stage& stage = last();
    const bool untouched = stage.resized == ImageSize{stage.source.height, stage.source.width};
    const bool unpadded = intersection(stage.valid, stage.window) == stage.window;
    Stage next = full_image(size());
    if (untouched && unpadded && !stage.flip) {  // resize the crop so far
      next.source = {stage.source.top + stage.window.top, stage.source.left + stage.window.left, stage.window.height,
                     stage.window.width};
      stages_.pop_back();
    }
    next.resized = to;
    next.window = next.valid = {0, 0, to.height, to.width};
    stages_.push_back(next);
  }

  std::vector<Stage> take() { return std::move(stages_); }

 private:
  static Stage full_image(ImageSize size) {
    const Rect all{0, 0, size.height, size.width};
    return {all, size, all, all, false};
  }
  const Stage& last() const { return stages_.back(); }

  std::vector<Stage> stages_;
};

struct Applier {
  Stages& stages;
  PhiloxStream random;

  void operator()(const ResizeConfig& config) {
    const ImageSize to = resized_size(config, stages.size());
    // Without this limit, an image one pixel wide could be resized to an enormous one.
    if (to.height * to.width > kMaxPixels)
      throw BadSample(fmt::format("resize would produce {}x{} pixels (height x width), over the limit of {}", to.height,
                                  to.width, kMaxPixels));
    stages.resize(to);
  }

  void operator()(const CenterCropConfig& config) {
    const auto [height, width] = stages.size();
    // torchvision first pads a smaller image, with the odd pixel at the bottom and right; then the crop fits exactly.
    const auto begin = [](int64_t have, int64_t want) {
      return have < want ? -((want - have) / 2) : round_half_even(static_cast<double>(have - want) / 2.0);
    };
    stages.crop({begin(height, config.height), begin(width, config.width), config.height, config.width});
  }

  void operator()(const RandomCropConfig& config) {
    const auto [height, width] = stages.size();
    const int64_t slack_y = height + 2 * config.padding - config.height,
                  slack_x = width + 2 * config.padding - config.width;
    if (slack_y < 0 || slack_x < 0)
      throw BadSample(
          fmt::format("random_crop to {}x{} is larger than the image with its padding, {}x{} (height x width)",
                      config.height, config.width, height + 2 * config.padding, width + 2 * config.padding));
    const int64_t top = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(slack_y + 1)));
    const int64_t left = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(slack_x + 1)));
    stages.crop({top - config.padding, left - config.padding, config.height, config.width});
  }

  void operator()(const RandomResizedCropConfig& config) {
    stages.crop(random_resized_crop(config, stages.size(), random));
    stages.resize({config.height, config.width});
  }

  void operator()(const RandomHorizontalFlipConfig& config) {
    if (random.next_unit() < config.p) stages.flip();
  }

  void operator()(const NormalizeConfig&) {}
};

}  // namespace

Geometry::Geometry(std::vector<TransformConfig> transforms, size_t first_index)
    : transforms_(std::move(transforms)), first_index_(first_index) {
  for (const TransformConfig& transform : transforms_) check(transform);
}

std::vector<Stage> Geometry::stages(ImageSize input, uint64_t sample_key) const {
  Stages stages(input);
  for (size_t i = 0; i < transforms_.size(); ++i)
    std::visit(Applier{stages, PhiloxStream(sample_key, first_index_ + i)}, transforms_[i]);
  return stages.take();
}

std::optional<ImageSize> Geometry::output_size(std::optional<ImageSize> input) const {
  std::optional<ImageSize> size = input;
  for (const TransformConfig& transform : transforms_) {
    if (const auto* resize = std::get_if<ResizeConfig>(&transform)) {
      if (!resize->shorter_side || size) size = resized_size(*resize, size.value_or(ImageSize{}));
    } else if (const auto* center = std::get_if<CenterCropConfig>(&transform)) {
      size = ImageSize{center->height, center->width};
    } else if (const auto* crop = std::get_if<RandomCropConfig>(&transform)) {
      size = ImageSize{crop->height, crop->width};
    } else if (const auto* random = std::get_if<RandomResizedCropConfig>(&transform)) {
      size = ImageSize{random->height, random->width};
    }
  }
  return size;
}

}  // namespace trainopt
