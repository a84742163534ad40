#include "data/image/resample.h"

#include "base/error.h"
#include "data/image/resample_rows.h"

#include <algorithm>
#include <cstring>

namespace trainopt {

Rect intersection(const Rect& a, const Rect& b) {
  const int64_t top = std::max(a.top, b.top), left = std::max(a.left, b.left);
  return {top, left, std::max<int64_t>(std::min(a.bottom(), b.bottom()) - top, 0),
          std::max<int64_t>(std::min(a.right(), b.right()) - left, 0)};
}

namespace {

/// First input sample used by outputs [begin, begin + count), and the number of samples from there.
std::pair<int64_t, int64_t> used_samples(const ResampleTable& table, int64_t begin, int64_t count) {
  int64_t end = 0;
  for (int64_t i = begin; i < begin + count; ++i) end = std::max<int64_t>(end, table.first[i] + table.count[i]);
  return {table.first[begin], end - table.first[begin]};
}

bool is_empty(const Rect& rect) { return rect.height <= 0 || rect.width <= 0; }

/// Computes the horizontally resized rows that the vertical sums need, each once, in a ring buffer.
class RowRing {
 public:
  RowRing(const InputRegion& input, const Stage& stage, const Rect& inside, bool planar, ResampleScratch& scratch)
      : input_(input),
        stage_(stage),
        inside_(inside),
        planar_(planar),
        scratch_(scratch),
        columns_(scratch.tables.get(stage.source.width, stage.resized.width)),
        rows_(scratch.tables.get(stage.source.height, stage.resized.height)),
        plane_(stage.window.width + kRowSlack),
        row_bytes_(planar ? plane_ * 3 : stage.window.width * 3 + kRowSlack),
        ring_size_(rows_->taps + 1) {
    // One more row than the ring, for the zeros. Columns outside the valid part are never written and also stay zero.
    scratch_.rows.assign(static_cast<size_t>((ring_size_ + 1) * row_bytes_), 0);
    taken_.resize(static_cast<size_t>(rows_->taps));
    std::tie(first_column_, column_count_) = used_samples(*columns_, inside.left, inside.width);
    made_ = rows_->first[inside.top];
  }

  int64_t plane() const { return plane_; }
  const uint8_t* zeros() const { return scratch_.rows.data() + ring_size_ * row_bytes_; }

  /// The sum that yields row `y` of the resized image; y must not decrease from call to call.
  RowSum sum(int64_t y) {
    const int64_t first = rows_->first[y], taps = rows_->count[y];
    made_ = std::max(made_, first);
    for (; made_ < first + taps; ++made_) make(made_);
    for (int64_t tap = 0; tap < taps; ++tap) taken_[tap] = ring_row(first + tap);
    return {taken_.data(), 0, rows_->coefficients.data() + y * rows_->taps, taps, 0};
  }

 private:
  uint8_t* ring_row(int64_t y) { return scratch_.rows.data() + y % ring_size_ * row_bytes_; }

  void make(int64_t y) {
    const Rect& window = stage_.window;
    const int64_t before = stage_.flip ? window.right() - inside_.right() : inside_.left - window.left;
    const RowRequest request{source_row(y), first_column_, stage_.flip ? inside_.right() - 1 : inside_.left,
                             stage_.flip ? -1 : 1, inside_.width};
    if (planar_) {
      resize_row_planar(*columns_, request, ring_row(y) + before, plane_);
    } else {
      resize_row_interleaved(*columns_, request, ring_row(y) + before * 3);
    }
  }

  /// The used part of a source row; a padded copy if reading ahead would leave the image's memory.
  const uint8_t* source_row(int64_t y) {
    const ImageView& view = input_.view;
    const int64_t offset =
        (stage_.source.top + y - input_.top) * view.stride + (stage_.source.left + first_column_ - input_.left) * 3;
    const int64_t used = column_count_ * 3, ahead = columns_->taps * 3 + 16;
    if (offset + used + ahead <= (view.height - 1) * view.stride + view.width * 3) return view.pixels + offset;
    scratch_.padded_row.resize(static_cast<size_t>(used + ahead));
    std::memcpy(scratch_.padded_row.data(), view.pixels + offset, static_cast<size_t>(used));
    return scratch_.padded_row.data();
  }

  const InputRegion& input_;
  const Stage& stage_;
  const Rect inside_;  // the part of the window that is not padding
  const bool planar_;
  ResampleScratch& scratch_;
  const std::shared_ptr<const ResampleTable> columns_, rows_;
  const int64_t plane_, row_bytes_, ring_size_;
  std::vector<const uint8_t*> taken_;
  int64_t first_column_ = 0, column_count_ = 0;
  int64_t made_ = 0;  // rows before this one are in the ring or no longer needed
};

void write_row(RowSum sum, int64_t y, int64_t plane, const Normalization& normalization,
               const Destination& destination) {
  const int64_t width = destination.width;
  switch (destination.format) {
    case PixelFormat::u8_hwc:
      sum.length = width * 3;
      return sum_rows_u8(sum, static_cast<uint8_t*>(destination.data) + y * width * 3);
    case PixelFormat::f32_hwc:
      sum.length = width * 3;
      return sum_rows_f32_interleaved(sum, normalization, static_cast<float*>(destination.data) + y * width * 3);
    case PixelFormat::f32_chw:
      sum.length = width;
      for (int channel = 0; channel < 3; ++channel) {
        sum.offset = channel * plane;
        sum_rows_f32_plane(sum, normalization, channel,
                           static_cast<float*>(destination.data) + (channel * destination.height + y) * width);
      }
  }
}

void write_zeros(const Normalization& normalization, const Destination& destination) {
  const int64_t pixels = destination.height * destination.width;
  float* const floats = static_cast<float*>(destination.data);
  switch (destination.format) {
    case PixelFormat::u8_hwc:
      std::memset(destination.data, 0, static_cast<size_t>(pixels * 3));
      break;
    case PixelFormat::f32_hwc:
      for (int64_t i = 0; i < pixels * 3; ++i) floats[i] = normalization.apply(0, static_cast<int>(i % 3));
      break;
    case PixelFormat::f32_chw:
      for (int channel = 0; channel < 3; ++channel)
        std::fill_n(floats + channel * pixels, pixels, normalization.apply(0, channel));
  }
}

/// Whether the result has the input's own pixels, in its order.
bool only_crops(const Stage& stage, PixelFormat format) {
  return format == PixelFormat::u8_hwc && !stage.flip &&
         stage.resized == ImageSize{stage.source.height, stage.source.width};
}

void crop(const InputRegion& input, const Stage& stage, const Rect& inside, const Destination& destination) {
  const ImageView& view = input.view;
  const uint8_t* from = view.pixels + (stage.source.top + inside.top - input.top) * view.stride +
                        (stage.source.left + inside.left - input.left) * 3;
  auto* to = static_cast<uint8_t*>(destination.data);
  const int64_t row = destination.width * 3, before = (inside.left - stage.window.left) * 3, bytes = inside.width * 3;
  if (inside == stage.window && view.stride == row) {
    std::memcpy(to, from, static_cast<size_t>(inside.height * row));
    return;
  }
  for (int64_t y = stage.window.top; y < stage.window.bottom(); ++y, to += row) {
    std::memset(to, 0, static_cast<size_t>(row));
    if (y < inside.top || y >= inside.bottom()) continue;
    std::memcpy(to + before, from + (y - inside.top) * view.stride, static_cast<size_t>(bytes));
  }
}

}  // namespace

Rect needed_input(const Stage& stage, ResampleTableCache& tables) {
  const Rect inside = intersection(stage.window, stage.valid);
  if (is_empty(inside)) return {stage.source.top, stage.source.left, 0, 0};
  const auto [top, height] =
      used_samples(*tables.get(stage.source.height, stage.resized.height), inside.top, inside.height);
  const auto [left, width] =
      used_samples(*tables.get(stage.source.width, stage.resized.width), inside.left, inside.width);
  return {stage.source.top + top, stage.source.left + left, height, width};
}

void resample(const InputRegion& input, const Stage& stage, const Normalization& normalization,
              const Destination& destination, ResampleScratch& scratch) {
  TRAINOPT_CHECK_EQUAL(destination.height, stage.window.height);
  TRAINOPT_CHECK_EQUAL(destination.width, stage.window.width);
  const Rect inside = intersection(stage.window, stage.valid);
  if (is_empty(inside)) return write_zeros(normalization, destination);
  if (only_crops(stage, destination.format)) return crop(input, stage, inside, destination);

  RowRing ring(input, stage, inside, destination.format == PixelFormat::f32_chw, scratch);
  const uint8_t* const zeros = ring.zeros();
  const int32_t one = 1 << kResampleBits;
  for (int64_t y = 0; y < stage.window.height; ++y) {
    const int64_t at = stage.window.top + y;
    const bool padding = at < inside.top || at >= inside.bottom();
    write_row(padding ? RowSum{&zeros, 0, &one, 1, 0} : ring.sum(at), y, ring.plane(), normalization, destination);
  }
}

}  // namespace trainopt
