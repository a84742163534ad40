// Images in the loader: 8-bit RGB, interleaved (HWC), rows from top to bottom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace trainopt {

/// A sample that cannot be used. what() is the reason; the caller knows the file.
class BadSample : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// A sample whose image does not have the same size as the others.
class SizeMismatch : public BadSample {
 public:
  using BadSample::BadSample;
};

struct ImageSize {
  int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

/// In pixels; may extend outside its image if that is padded with zeros.
struct Rect {
  int64_t top = 0, left = 0, height = 0, width = 0;
  int64_t bottom() const { return top + height; }
  int64_t right() const { return left + width; }
  bool operator==(const Rect&) const = default;
};

/// The intersection of two rectangles; height or width is 0 if they do not overlap.
Rect intersection(const Rect& a, const Rect& b);

/// A view of pixels owned elsewhere. Rows are `stride` bytes apart; nothing is read past the last pixel.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0;
  int64_t stride = 0;
};

/// An image that owns its pixels. The memory only grows, so that an image can be refilled without allocating.
class ImageU8 {
 public:
  /// Leaves the values of the pixels unspecified.
  void set_size(ImageSize size) {
    size_ = size;
    const size_t needed = static_cast<size_t>(size.height * size.width * 3);
    if (pixels_.size() < needed) pixels_.resize(needed);
  }
  ImageSize size() const { return size_; }
  /// Bytes of the memory, of which the last image may use less.
  int64_t allocated_bytes() const { return static_cast<int64_t>(pixels_.capacity()); }
  uint8_t* row(int64_t y) { return pixels_.data() + y * size_.width * 3; }
  ImageView view() const { return {pixels_.data(), size_.height, size_.width, size_.width * 3}; }

 private:
  ImageSize size_;
  std::vector<uint8_t> pixels_;
};

}  // namespace trainopt
