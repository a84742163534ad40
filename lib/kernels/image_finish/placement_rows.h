// Rows of a placement: which image each item of a batch is, and which part of it. Free of libtorch, because device code
// reads it too.
#pragma once

#include <cstdint>

namespace trainopt::kernels {

/// Rows of a placement, int32 [rows, items]. The first row alone takes images whole; kWindowRows rows add the window to
/// crop, after a resize if there is one; all rows add the part of each image to resize.
enum PlacementRow : int64_t {
  kImage,  ///< index among the images on the device
  kTop,
  kLeft,  ///< the window to crop; may reach outside the image
  kFlip,  ///< 1: mirror the window left to right
  kValidTop,
  kValidBottom,
  kValidLeft,
  kValidRight,  ///< the part of the window that shows the image; the rest is black
  kWindowRows,
  kBoxTop = kWindowRows,
  kBoxLeft,
  kBoxHeight,
  kBoxWidth,  ///< the part to resize, inside the image
  kBoxRows
};

}  // namespace trainopt::kernels
