// The last steps from a decoded image to a model's input, on the device that holds the batch: resize, crop, pad with
// black, mirror, scale, normalise and lay out. A value v of channel c becomes (v / 255 − mean[c]) / std[c]; each
// operation is rounded to float32, as in torchvision's ToTensor and Normalize, and the result to its type.
#pragma once

#include "kernels/image_finish/launch.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>

namespace trainopt::kernels {

/// A size in pixels.
struct Extent {
  int64_t height = 0, width = 0;
  bool operator==(const Extent&) const = default;
};
struct Box {
  int64_t top = 0, left = 0, height = 0, width = 0;
  int64_t bottom() const { return top + height; }
  int64_t right() const { return left + width; }
};

/// Weights for lines of `shortest`, `shortest` + 1, … samples, each resized to `output` samples. An output sample is (Σ
/// coefficients · samples from `first` on + ½) ÷ 2^kResizeBits, at most 255.
struct ResizeWeights {
  int64_t shortest;
  at::Tensor first, count;  ///< int32 [lines, output]
  at::Tensor coefficients;  ///< int32 [lines, output, taps]; zero past `count`
};

/// One image and the window of it to output.
struct ResizedWindow {
  const uint8_t* image;  ///< [extent.height, extent.width, 3]
  Extent extent;
  Box box;         ///< the part that is resized
  Extent resized;  ///< the size to which `box` is resized
  Box window;      ///< the output, relative to the resized box; may reach outside it
  Box shown;       ///< part of the resized box; pixels of the window outside it are black
  bool flip;       ///< mirrors the window left to right
};

/// The loader's resize, which every implementation must match bit for bit: the weights of its two passes (columns
/// first, each rounded to bytes), and the resize itself for CPUs.
class Resizer {
 public:
  virtual ~Resizer() = default;
  /// The result is on the CPU.
  virtual ResizeWeights weights(int64_t shortest, int64_t longest, int64_t output) const = 0;
  /// Writes the window to `out`, [window.height, window.width, 3]. Called from several threads at once.
  virtual void resize(const ResizedWindow& window, uint8_t* out) const = 0;
};

class ImageFinish {
 public:
  struct Resize {
    Extent from, to;  ///< from: size of whole images
    bool boxed;       ///< resize each image's own box; otherwise the whole image
    std::shared_ptr<const Resizer> resizer;
  };
  struct Normalization {
    std::array<float, 3> mean{0, 0, 0}, std{1, 1, 1};
  };
  struct Result {
    Extent size;
    at::ScalarType type = at::kFloat;  ///< or bfloat16, float16: float32 results rounded to nearest, ties to even
    at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  };
  /// `resize`: nullopt for images that keep their size.
  ImageFinish(const std::optional<Resize>& resize, const Normalization& normalization, const Result& result,
              c10::Device device);

  /// `images`: uint8 [n, h, w, 3]. `placement`: int32 [1, kWindowRows or kBoxRows; items] (placement_rows.h) on the
  /// same device; undefined takes all images whole, in order. Returns a new tensor [items, 3, height, width],
  /// bit-identical to the loader's own path. Runs image by image on a CPU, and in one kernel on a GPU if the build has
  /// it.
  at::Tensor operator()(const at::Tensor& images, const at::Tensor& placement) const;
  /// operator() from tensor operations: the reference, and the fallback for devices for which the build has no kernel.
  at::Tensor reference(const at::Tensor& images, const at::Tensor& placement) const;
  /// operator() with these launches, queued on the current stream of the device.
  at::Tensor launched(const device::FinishLaunches& launches, const at::Tensor& images,
                      const at::Tensor& placement) const;

 private:
  at::Tensor on_cpu(const at::Tensor& images, const at::Tensor& placement) const;
  void check(const at::Tensor& images, const at::Tensor& placement) const;
  at::Tensor make_batch(const at::Tensor& images, const at::Tensor& placement) const;
  struct Weights {
    ResizeWeights rows, columns;
  };
  Weights make_weights(c10::Device device) const;
  Weights weights() const { return weights_ ? *weights_ : make_weights(at::kCPU); }
  at::Tensor resized(const at::Tensor& images, const at::Tensor& placement) const;

  std::optional<Resize> resize_;
  Result result_;
  at::Tensor full_scale_, mean_, std_;    // on the device; mean and std are undefined if they change nothing
  at::Tensor levels_, levels_on_device_;  // [3, 256] of the result's type: the result for each level, by channel
  std::optional<Weights> weights_;        // set for a resize that the CPU code does not do
};

}  // namespace trainopt::kernels
