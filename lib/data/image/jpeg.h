// JPEG through libjpeg-turbo: slow integer DCT and smooth chroma upsampling, as Pillow uses it; whole, in part, or at
// reduced size.
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
  /// The size at 1/reduction (1, 2, 4 or 8) of the full one, rounded up.
  ImageSize reduced_size(int reduction) const;

  /// Call one of these, once.
  void read_all(ImageU8& out);
  /// Decodes at least `part` of the reduced image into `buffer` and returns where it lies. At reduction 1 the pixels of
  /// `part` are those of read_all(); rows below are not looked at, and damage there goes unseen, if the file ends as a
  /// JPEG should.
  InputRegion read(const Rect& part, int reduction, ImageU8& buffer);

  struct State;  // libjpeg's

 private:
  std::unique_ptr<State> state_;
};

}  // namespace trainopt
