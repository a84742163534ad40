// Images that a Parquet file stores as lists of numbers.
#pragma once

#include "data/formats/parquet/parquet_reader.h"
#include "data/image/image.h"

namespace trainopt {

struct ListedPixels {
  ImageSize size;    ///< every image's size
  ParquetBytes rgb;  ///< 8 bits, row by row
};

/// Lists of height × width × 3, 3 × height × width, or height × width (grey) numbers from 0 to 255. Throws BadSample.
ListedPixels pixels_of(const ParquetNumbers& numbers);

}  // namespace trainopt
