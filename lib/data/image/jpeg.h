// JPEG decoding with libjpeg-turbo, complete, in part or at reduced size. Uses the slow integer DCT and smooth chroma
// upsampling, as Pillow does.
#pragma once

#include "data/image/decode.h"
#include "data/image/resample.h"

#include <memory>

namespace trainopt {

/// How far a file is read: only as far as a part of the image needs it, or to the end, which also finds the damage
/// below the part.
enum class ReadTo { part, end };

class JpegReader {
 public:
  /// Reads the header; keeps a reference to the bytes. Throws BadSample.
  explicit JpegReader(std::span<const uint8_t> file, int64_t max_pixels = kMaxPixels);
  ~JpegReader();

  ImageSize size() const;
  /// The full size divided by `reduction` (1, 2, 4 or 8), rounded up.
  ImageSize reduced_size(int reduction) const;
  /// What decoding takes at most: the pixels, and the coefficients of a file with several scans.
  int64_t bytes_to_decode() const;

  /// Call read_all() or read(), once.
  void read_all(ImageU8& out);
  /// Decodes at least `part` of the reduced image into `buffer` and returns its position. At reduction 1, the pixels of
  /// `part` are those of read_all(). With ReadTo::end it throws BadSample for the same files as read_all(), whatever
  /// the part is.
  InputRegion read(const Rect& part, int reduction, ImageU8& buffer, ReadTo to = ReadTo::end);

  struct State;  // libjpeg's

 private:
  std::unique_ptr<State> state_;
};

}  // namespace trainopt
