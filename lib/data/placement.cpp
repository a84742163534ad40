#include "data/placement.h"

#include "base/error.h"
#include "device/memory.h"
#include "kernels/image_finish/placement_rows.h"

#include <algorithm>

namespace trainopt {

using kernels::PlacementRow;
using enum kernels::PlacementRow;

Placer::Placer(const std::vector<TransformConfig>& transforms, size_t first_index, ImageSize input, uint64_t seed)
    : geometry_(transforms, first_index), keys_(seed), input_(input), output_size_(input) {
  try {
    const auto stages = geometry_.stages(input, 0);
    TRAINOPT_CHECK_EQUAL(stages.size(), size_t{1});
    output_size_ = {stages[0].window.height, stages[0].window.width};
    if (!transforms.empty() && std::holds_alternative<RandomResizedCropConfig>(transforms[0])) {
      resize_ = ImageResize{input, Geometry({transforms[0]}).output_size(input).value(), true};
      rows_ = kBoxRows;
      return;
    }
    if (stages[0].resized != input) resize_ = ImageResize{input, stages[0].resized, false};
  } catch (const BadSample& bad) {
    throw UserError(fmt::format("data.transforms: {}", bad.what()), ExitCode::data);
  }
  if (std::any_of(transforms.begin(), transforms.end(),
                  [](const auto& t) { return !std::holds_alternative<ResizeConfig>(t); }))
    rows_ = kWindowRows;
}

at::Tensor Placer::operator()(const DrawnBatch& batch, bool pinned) const {
  const auto items = static_cast<int64_t>(batch.samples.size());
  at::Tensor placement = host_tensor({rows_, items}, at::kInt, at::MemoryFormat::Contiguous, pinned);
  int32_t* rows = placement.data_ptr<int32_t>();
  for (int64_t i = 0; i < items; ++i) {
    const auto put = [&](PlacementRow row, int64_t value) { rows[row * items + i] = static_cast<int32_t>(value); };
    const int64_t sample = batch.samples[static_cast<size_t>(i)];
    put(kImage, batch.in_order ? i : sample);
    if (!needs_placement()) continue;
    Stage stage = geometry_.stages(input_, keys_.augmentation(batch.epoch, sample)).front();
    Rect shown = intersection(stage.valid, stage.window);
    if (rows_ == kBoxRows) {
      if (stage.resized != resize_->to) box(stage, shown);
      put(kBoxTop, stage.source.top), put(kBoxLeft, stage.source.left), put(kBoxHeight, stage.source.height),
          put(kBoxWidth, stage.source.width);
    }
    put(kTop, stage.window.top), put(kLeft, stage.window.left), put(kFlip, stage.flip ? 1 : 0);
    put(kValidTop, shown.top), put(kValidBottom, shown.bottom()), put(kValidLeft, shown.left),
        put(kValidRight, shown.right());
  }
  return placement;
}

/// A box that already has the output size is not resized; its stage crops a window out of the whole image instead. The
/// placement needs a box for every image, so this sets one that contains the visible part and makes the window and
/// `shown` relative to it.
void Placer::box(Stage& stage, Rect& shown) const {
  const auto [height, width] = resize_->to;
  stage.source = {std::min(shown.top, input_.height - height), std::min(shown.left, input_.width - width), height,
                  width};
  for (Rect* rect : {&stage.window, &shown}) rect->top -= stage.source.top, rect->left -= stage.source.left;
}

}  // namespace trainopt
