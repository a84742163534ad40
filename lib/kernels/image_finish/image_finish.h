// The last steps from a decoded image to a model's input, where the batch lies: resize, cut, pad with black, mirror,
// scale, normalise and lay out. A value v of channel c becomes (v / 255 − mean[c]) / std[c], each operation rounded to
// float32 as torchvision's ToTensor and Normalize do, and then to the result's type.
#pragma once

#include "kernels/image_finish/launch.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>

namespace trainopt::kernels {

/// Of pixels.
struct Extent {
  int64_t height = 0, width = 0;
  bool operator==(const Extent&) const = default;
};
struct Box {
  int64_t top = 0, left = 0, height = 0, width = 0;
  int64_t bottom() const { return top + height; }
  int64_t right() const { return left + width; }
};

/// Of lines of `shortest`, `shortest` + 1, … samples, all made into `output` samples: each of these is
/// (Σ coefficients · samples from `first` on + ½) ÷ 2^kResizeBits, at most 255.
struct ResizeWeights {
  int64_t shortest;
  at::Tensor first, count;  ///< int32 [lines, output]
  at::Tensor coefficients;  ///< int32 [lines, output, taps]; zero behind `count`
};

/// What comes out of one image.
struct ResizedWindow {
  const uint8_t* image;  ///< [extent.height, extent.width, 3]
  Extent extent;
  Box box;         ///< the part that is resized
  Extent resized;  ///< to this size
  Box window;      ///< of the resized box: what comes out; may reach outside
  Box shown;       ///< of the resized box, inside it: the window's pixels outside of it are black
  bool flip;       ///< mirrors the window left to right
};

/// The loader's resize, whose bits every form must have: the weights of its two passes (columns first, each rounded to
/// bytes), and the resize itself for CPUs.
class Resizer {
 public:
  virtual ~Resizer() = default;
  /// On the CPU.
  virtual ResizeWeights weights(int64_t shortest, int64_t longest, int64_t output) const = 0;
  /// Writes the window to `out`, [window.height, window.width, 3]. Called from several threads at once.
  virtual void resize(const ResizedWindow& window, uint8_t* out) const = 0;
};

class ImageFinish {
 public:
  struct Resize {
    Extent from, to;  ///< from: of whole images
    bool boxed;       ///< each image's own box is resized, otherwise the whole
    std::shared_ptr<const Resizer> resizer;
  };
  struct Normalization {
    std::array<float, 3> mean{0, 0, 0}, std{1, 1, 1};
  };
  struct Result {
    Extent size;
    at::ScalarType type = at::kFloat;  ///< or bfloat16, float16: the float32 numbers rounded to nearest, ties to even
    at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  };
  /// `resize`: null for images that keep their size.
  ImageFinish(const std::optional<Resize>& resize, const Normalization& normalization, const Result& result,
              c10::Device device);

  /// `images`: uint8 [n, h, w, 3]. `placement`: int32 [1, kWindowRows or kBoxRows; items] (placement_rows.h) on the
  /// same device; undefined for all images as they are, in order. Gives a new tensor [items, 3, height, width] with the
  /// bits of the loader's own path. On a CPU image by image; on a GPU in one kernel, if the build has it.
  at::Tensor operator()(const at::Tensor& images, const at::Tensor& placement) const;
  /// The same as tensor operations: the obvious twin, and what runs on devices for which the build has no kernel.
  at::Tensor reference(const at::Tensor& images, const at::Tensor& placement) const;
  /// The same by these launches, queued on the device's current stream.
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
  at::Tensor full_scale_, mean_, std_;    // on the device; mean and std undefined where they would change nothing
  at::Tensor levels_, levels_on_device_;  // [3, 256] of the result's type: what becomes of each grey level, by channel
  std::optional<Weights> weights_;        // of a resize, where the CPU's own code does not do it
};

}  // namespace trainopt::kernels
