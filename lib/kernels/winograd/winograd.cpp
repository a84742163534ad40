#include "kernels/winograd/winograd.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/tensors.h"
#include "kernels/cpu/by_type.h"
#include "kernels/winograd/tiles.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace trainopt::kernels::winograd {
namespace {

/// Tiles are processed in blocks whose transforms stay in a cache between passes. If there are enough for every thread,
/// each thread processes blocks of its own, in its own cache: of the first number of tiles if that cache also holds the
/// weights, otherwise of the second, for which reading the weights again pays.
constexpr int64_t kOwnTiles = 48, kOwnTilesOfLargeWeights = 96, kOwnCacheBytes = int64_t{1} << 20;
/// Weights that every thread would read from memory again are read once, by all.
constexpr int64_t kMostWeightBytes = int64_t{12} << 20;
/// Otherwise all threads share a block in the last-level cache, of this many bytes, but with at least enough tiles to
/// be worth reading the weights of a position.
constexpr int64_t kBlockBytes = int64_t{8} << 20, kMinBlockTiles = 256;
/// Parts of the tiles with sums of their own for the weights' gradient, where their sums fit in a thread's cache. Their
/// number must not depend on that of threads, or results would.
constexpr int64_t kParts = 16;
/// Tiles, or rows of weights, below which starting another thread does not pay.
constexpr int64_t kGrain = 8;
/// Tiles of a product that one thread processes together: a multiple of the rows that any vector width takes at once.
constexpr int64_t kRows = 96;

template <class F>
auto by_image_type(const at::Tensor& x, const F& work) {
  if (x.scalar_type() == at::kDouble) return work(double());
  return by_type(x, work);
}

template <class F>
auto by_products(Products products, const F& work) {
  return products == Products::bfloat16 ? work(c10::BFloat16()) : work(float());
}

/// Calls work(type of the image, type that its products read), both as values.
template <class F>
auto by_types(const at::Tensor& image, Products products, const F& work) {
  if (image.scalar_type() == at::kDouble) {
    TRAINOPT_CHECK(products == Products::full);
    return work(double(), double());
  }
  return by_type(image, [&](auto type) {
    return by_products(products, [&](auto of_products) { return work(type, of_products); });
  });
}

/// Transformed values with their memory.
template <class W>
struct TransformedBuffer : Transformed<W> {
  TransformedBuffer(int64_t by_rows, int64_t by_channels, at::Device device)
      : Transformed<W>{
            .at = nullptr, .position = by_rows * by_channels + kPanel, .rows = by_rows, .channels = by_channels} {
    TRAINOPT_CHECK(by_rows > 0 && by_channels > 0 && by_channels % kPanel == 0);
    // Positions are one cache line apart: otherwise those of one tile would often map to the same cache set.
    memory_ =
        at::empty({kPositions * this->position}, at::TensorOptions(device).dtype(c10::CppTypeToScalarType<W>::value));
    this->at = memory_.template mutable_data_ptr<W>();
  }

  void add(const TransformedBuffer& other) { memory_.add_(other.memory_); }

 private:
  at::Tensor memory_;
};

Grid grid_of(const at::Tensor& image) {
  return {.images = image.size(0), .height = image.size(2), .width = image.size(3)};
}

/// Transformed weights with their output (`by_output`) or input channels as rows, the others as channels.
template <class W>
TransformedBuffer<W> transformed_weights(const at::Tensor& weight, bool by_output, bool rotated) {
  TRAINOPT_CHECK(weight.dim() == 4 && weight.size(2) == kKernel && weight.size(3) == kKernel);
  const at::Tensor w = nhwc(by_output ? weight : weight.transpose(0, 1));
  TransformedBuffer<W> to(w.size(0), w.size(1), w.device());
  if (w.is_meta()) return to;
  by_image_type(w, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<Work<T>, Sum<W>>)
      at::parallel_for(0, to.rows, kGrain, [&](int64_t begin, int64_t end) {
        tile_kernels<T, W>().weights(w.const_data_ptr<T>(), rotated, begin, end, to);
      });
    else
      throw BrokenInvariant("images and weights must both be float64, or neither");
  });
  return to;
}

/// `bytes`: of a tile's transformed values at one position.
int64_t tiles_in_block(const Grid& grid, size_t bytes) {
  return std::min(grid.tiles(), std::max(kMinBlockTiles, kBlockBytes / (kPositions * static_cast<int64_t>(bytes))));
}

/// Tiles of a block that a thread processes alone, or 0 if there are too few.
int64_t tiles_of_own(const Grid& grid, int64_t bytes_of_weights) {
  if (grid.tiles() / at::get_num_threads() < kOwnTiles || bytes_of_weights > kMostWeightBytes) return 0;
  return bytes_of_weights <= kOwnCacheBytes ? kOwnTiles : kOwnTilesOfLargeWeights;
}

/// Calls work(first, last) for each block of tiles [begin, end).
template <class F>
void in_blocks(int64_t begin, int64_t end, int64_t block, const F& work) {
  for (int64_t first = begin; first < end; first += block) work(first, std::min(first + block, end));
}

/// Calls work(position, begin, end) for ranges of [0, count) at every position, in parallel; ranges begin at multiples
/// of `piece`.
template <class F>
void at_positions(int64_t count, int64_t piece, const F& work) {
  const int64_t pieces = (count + piece - 1) / piece;
  at::parallel_for(0, kPositions * pieces, 1, [&](int64_t begin, int64_t end) {
    while (begin < end) {  // all of this range that is in one position
      const int64_t position = begin / pieces, first = begin % pieces, last = std::min(pieces, first + end - begin);
      work(position, first * piece, std::min(count, last * piece));
      begin += last - first;
    }
  });
}

/// T: type of the images. `weights`: input channels × output channels.
template <class T, class P>
at::Tensor convolved(const at::Tensor& image, const Transformed<P>& weights) {
  const at::Tensor x = nhwc(image);
  const Grid grid = grid_of(x);
  const int64_t in = weights.rows, out = weights.channels;
  TRAINOPT_CHECK(x.dim() == 4 && x.size(1) == in);
  at::Tensor y = at::empty({grid.images, out, grid.height, grid.width}, x.options(), at::MemoryFormat::ChannelsLast);
  const size_t bytes = static_cast<size_t>(in) * sizeof(P) + static_cast<size_t>(out) * sizeof(Work<T>);
  // Within a parallel region, all of it runs on the calling thread.
  const auto convolve = [&](int64_t from, int64_t to, int64_t block) {
    const TransformedBuffer<P> inputs(block, in, x.device());
    const TransformedBuffer<Work<T>> outputs(block, out, x.device());
    if (x.is_meta()) return;
    const auto& kernels = tile_kernels<T, P>();
    in_blocks(from, to, block, [&](int64_t first, int64_t last) {
      at::parallel_for(first, last, kGrain, [&](int64_t begin, int64_t end) {
        kernels.inputs(x.const_data_ptr<T>(), grid, first, begin, end, inputs);
      });
      at_positions(last - first, kRows, [&](int64_t position, int64_t begin, int64_t end) {
        product_kernels<P>().product(inputs.at_position(position), weights.at_position(position), begin, end,
                                     outputs.at_position(position));
      });
      at::parallel_for(first, last, kGrain, [&](int64_t begin, int64_t end) {
        kernels.outputs(outputs, grid, first, begin, end, y.mutable_data_ptr<T>());
      });
    });
  };
  const int64_t own = tiles_of_own(grid, kPositions * in * out * static_cast<int64_t>(sizeof(P)));
  if (own > 0)
    at::parallel_for(0, grid.tiles(), own, [&](int64_t begin, int64_t end) { convolve(begin, end, own); });
  else
    convolve(0, grid.tiles(), tiles_in_block(grid, bytes));
  return y;
}

/// The sums over tiles [begin, end), `block` at a time. Within a parallel region, all of it runs on the calling thread.
template <class T, class P>
void sum_gradients(const at::Tensor& g, const at::Tensor& x, int64_t begin, int64_t end, int64_t block,
                   const Transformed<Work<T>>& sums) {
  const Grid grid = grid_of(x);
  const TransformedBuffer<P> inputs(block, sums.channels, x.device()), gradients(block, sums.rows, x.device());
  if (x.is_meta()) return;
  const auto& kernels = tile_kernels<T, P>();
  in_blocks(begin, end, block, [&](int64_t first, int64_t last) {
    at::parallel_for(first, last, kGrain, [&](int64_t from, int64_t to) {
      kernels.inputs(x.const_data_ptr<T>(), grid, first, from, to, inputs);
      kernels.output_gradients(g.const_data_ptr<T>(), grid, first, from, to, gradients);
    });
    at_positions(sums.rows, kPanel, [&](int64_t position, int64_t from, int64_t to) {
      product_kernels<P>().outer_product(gradients.at_position(position), inputs.at_position(position), last - first,
                                         from, to, first > begin, sums.at_position(position));
    });
  });
}

template <class T, class P>
TransformedBuffer<Work<T>> transformed_weight_gradient(const at::Tensor& g, const at::Tensor& x) {
  const Grid grid = grid_of(x);
  const int64_t in = x.size(1), out = g.size(1), tiles = grid.tiles();
  TRAINOPT_CHECK(g.size(0) == grid.images && g.size(2) == grid.height && g.size(3) == grid.width);
  const bool in_parts =
      kPositions * in * out * static_cast<int64_t>(sizeof(Work<T>)) <= kOwnCacheBytes && tiles >= kParts * kOwnTiles;
  if (!in_parts) {
    TransformedBuffer<Work<T>> sums(out, in, x.device());
    sum_gradients<T, P>(g, x, 0, tiles, tiles_in_block(grid, static_cast<size_t>(in + out) * sizeof(P)), sums);
    return sums;
  }
  std::vector<TransformedBuffer<Work<T>>> parts;
  for (int64_t part = 0; part < kParts; ++part) parts.emplace_back(out, in, x.device());
  at::parallel_for(0, kParts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part)
      sum_gradients<T, P>(g, x, tiles * part / kParts, tiles * (part + 1) / kParts, kOwnTiles,
                          parts[static_cast<size_t>(part)]);
  });
  for (size_t part = 1; part < parts.size(); ++part) parts[0].add(parts[part]);
  return std::move(parts[0]);
}

}  // namespace

double saving(int64_t height, int64_t width) {
  const Grid grid{.images = 1, .height = height, .width = width};
  return static_cast<double>(height * width * kKernel * kKernel) / static_cast<double>(grid.tiles() * kPositions);
}

bool has_bfloat16_products() { return has_avx512_bf16(); }

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, Products products) {
  return by_types(input, products, [&](auto type, auto of_products) {
    return convolved<decltype(type)>(input, transformed_weights<decltype(of_products)>(weight, false, false));
  });
}

// The convolution with channels exchanged and weights rotated by 180°.
at::Tensor input_gradient(const at::Tensor& output_gradient, const at::Tensor& weight, Products products) {
  return by_types(output_gradient, products, [&](auto type, auto of_products) {
    return convolved<decltype(type)>(output_gradient, transformed_weights<decltype(of_products)>(weight, true, true));
  });
}

at::Tensor weight_gradient(const at::Tensor& output_gradient, const at::Tensor& input, at::ScalarType type,
                           Products products) {
  const at::Tensor x = nhwc(input), g = nhwc(output_gradient.to(x.scalar_type()));
  at::Tensor result =
      at::empty({g.size(1), x.size(1), kKernel, kKernel}, x.options().dtype(type), at::MemoryFormat::ChannelsLast);
  by_types(x, products, [&](auto of_image, auto of_products) {
    const auto sums = transformed_weight_gradient<decltype(of_image), decltype(of_products)>(g, x);
    if (x.is_meta()) return;
    by_image_type(result, [&](auto of_weight) {
      using T = decltype(of_weight);
      if constexpr (std::is_same_v<Work<T>, Work<decltype(of_image)>>)
        at::parallel_for(0, sums.rows, kGrain, [&](int64_t begin, int64_t end) {
          tile_kernels<T, Work<T>>().weight_gradients(sums, begin, end, result.mutable_data_ptr<T>());
        });
      else
        throw BrokenInvariant("images and weights must both be float64, or neither");
    });
  });
  return result;
}

}  // namespace trainopt::kernels::winograd
