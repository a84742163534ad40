// JPEG decoding with libjpeg-turbo, complete, in part or at reduced size. Uses the slow integer DCT and smooth chroma
// upsampling, as Pillow does.
#pragma once

#include "data/image/decode.h"
#include "data/image/resample.h"

#include <memory>

namespace trainopt {

class JpegReader {
 public:
  /// Reads the header; keeps a reference to the bytes. Throws BadSample.
  explicit JpegReader(std::span<const uint8_t> file);
  ~JpegReader();

  ImageSize size() const;
  /// The full size divided by `reduction` (1, 2, 4 or 8), rounded up.
  ImageSize reduced_size(int reduction) const;

  /// Call read_all() or read(), once.
  void read_all(ImageU8& out);
  /// Decodes at least `part` of the reduced image into `buffer` and returns its position. At reduction 1, the pixels of
  /// `part` are those of read_all(). If the file ends as a JPEG should, rows below `part` are not decoded and damage
  /// there goes unnoticed.
  InputRegion read(const Rect& part, int reduction, ImageU8& buffer);

  struct State;  // libjpeg's

 private:
  std::unique_ptr<State> state_;
};

}  // namespace trainopt
