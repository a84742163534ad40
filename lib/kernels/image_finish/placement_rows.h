// What the rows of a placement say: which image each item of a batch is, and which part of it. Free of libtorch: device
// code reads it too.
#pragma once

#include <cstdint>

namespace trainopt::kernels {

/// Rows of a placement, int32 [rows, items]. The first alone says that images are taken whole; kWindowRows of them,
/// what is cut out of each, after a resize if there is one; all, what part of each is resized.
enum PlacementRow : int64_t {
  kImage,  ///< which of the images that lie on the device
  kTop,
  kLeft,  ///< of the window that is cut out; may reach outside the image
  kFlip,  ///< 1: the window is mirrored left to right
  kValidTop,
  kValidBottom,
  kValidLeft,
  kValidRight,  ///< what of the window shows the image; the rest is black
  kWindowRows,
  kBoxTop = kWindowRows,
  kBoxLeft,
  kBoxHeight,
  kBoxWidth,  ///< of what is resized, inside the image
  kBoxRows
};

}  // namespace trainopt::kernels
