// Creates kernels::ImageFinish with the loader's sizes, normalisation and resize.
#pragma once

#include "data/image/image.h"
#include "data/image/normalization.h"
#include "data/placement.h"
#include "kernels/image_finish/image_finish.h"

namespace trainopt {

struct FinishedAs {
  ImageSize size;
  at::ScalarType type = at::kFloat;
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
};

/// `resize`: null if images keep their size.
kernels::ImageFinish make_image_finish(const std::optional<ImageResize>& resize, const Normalization& normalization,
                                       const FinishedAs& result, c10::Device device);

}  // namespace trainopt
