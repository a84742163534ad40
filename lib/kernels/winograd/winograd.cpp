#include "kernels/winograd/winograd.h"

#include "base/error.h"
#include "device/differentiable.h"
#include "device/tensor.h"
#include "kernels/cpu/by_type.h"
#include "kernels/tensors.h"
#include "kernels/winograd/transformed.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace trainopt::kernels::winograd {
namespace {

/// Tiles are processed in blocks whose transforms stay in a cache between passes. If there are enough for every thread,
/// each thread processes blocks of its own: of the first number of tiles if a core's cache also holds the weights,
/// otherwise of the second, for which reading the weights again pays; fewer if they would take more memory than this.
constexpr int64_t kOwnTiles = 48, kOwnTilesOfLargeWeights = 96, kOwnCacheBytes = int64_t{1} << 20,
                  kMostOwnBytes = int64_t{4} << 20;
/// Weights that every thread would read from memory again are read once, by all.
constexpr int64_t kMostWeightBytes = int64_t{12} << 20;
/// Otherwise all threads share a block in the last-level cache, of this many bytes, but with at least enough tiles to
/// be worth reading the weights of a position.
constexpr int64_t kBlockBytes = int64_t{8} << 20, kMinBlockTiles = 256;
/// Parts of the tiles with sums of their own for the weights' gradient, where their sums fit in a thread's cache. Their
/// number must not depend on that of threads, or results would.
constexpr int64_t kParts = 16;
/// Tiles of a product that one thread processes together: a multiple of the rows that any vector width takes at once.
constexpr int64_t kRows = 96;

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

Grid grid_of(const at::Tensor& image) {
  return {.images = image.size(0), .height = image.size(2), .width = image.size(3)};
}

/// `bytes`: of a tile's transformed values at one position.
int64_t tiles_in_block(const Grid& grid, int64_t bytes) {
  return std::min(grid.tiles(), std::max(kMinBlockTiles, kBlockBytes / (kPositions * bytes)));
}

/// Tiles of a block that a thread processes alone, or 0 if there are too few. `bytes`: of a tile at one position.
int64_t tiles_of_own(const Grid& grid, int64_t bytes, int64_t bytes_of_weights) {
  if (grid.tiles() / at::get_num_threads() < kOwnTiles || bytes_of_weights > kMostWeightBytes) return 0;
  const int64_t wanted = bytes_of_weights <= kOwnCacheBytes ? kOwnTiles : kOwnTilesOfLargeWeights;
  const int64_t tiles = std::min(wanted, kMostOwnBytes / (kPositions * bytes));
  return tiles < kOwnTiles ? 0 : tiles;
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

/// The transforms of one block. Allocated on the calling thread: allocations of others are not recorded.
template <class T, class P>
struct Block {
  TransformedBuffer<P> inputs;
  TransformedBuffer<Work<T>> outputs;
};

/// Convolves tiles [begin, end), `tiles` at a time. Within a parallel region, all of it runs on the calling thread.
/// `weights`: input channels × output channels.
template <class T, class P>
void convolve(const at::Tensor& x, const Transformed<P>& weights, int64_t begin, int64_t end, int64_t tiles,
              const Block<T, P>& block, T* y) {
  const Grid grid = grid_of(x);
  const auto& kernels = tile_kernels<T, P>();
  in_blocks(begin, end, tiles, [&](int64_t first, int64_t last) {
    at::parallel_for(first, last, kGrain, [&](int64_t from, int64_t to) {
      kernels.inputs(x.const_data_ptr<T>(), grid, first, from, to, block.inputs);
    });
    at_positions(last - first, kRows, [&](int64_t position, int64_t from, int64_t to) {
      product_kernels<P>().product(block.inputs.at_position(position), weights.at_position(position), from, to,
                                   block.outputs.at_position(position));
    });
    at::parallel_for(first, last, kGrain,
                     [&](int64_t from, int64_t to) { kernels.outputs(block.outputs, grid, first, from, to, y); });
  });
}

/// T: type of the images.
template <class T, class P>
at::Tensor convolved(const at::Tensor& image, const Transformed<P>& weights) {
  const at::Tensor x = nhwc(image);
  const Grid grid = grid_of(x);
  const int64_t in = weights.rows, out = weights.channels;
  TRAINOPT_CHECK(x.dim() == 4 && x.size(1) == in);
  at::Tensor y = at::empty({grid.images, out, grid.height, grid.width}, x.options(), at::MemoryFormat::ChannelsLast);
  const int64_t size = sizeof(P), bytes = in * size + out * int64_t{sizeof(Work<T>)};
  const int64_t own = tiles_of_own(grid, bytes, kPositions * in * out * size);
  const int64_t tiles = own > 0 ? own : tiles_in_block(grid, bytes);
  std::vector<Block<T, P>> blocks;
  for (int thread = 0; thread < (own > 0 ? at::get_num_threads() : 1); ++thread)
    blocks.push_back({{tiles, in, x.device()}, {tiles, out, x.device()}});
  if (x.is_meta()) return y;
  T* const to = y.mutable_data_ptr<T>();
  if (own > 0)
    at::parallel_for(0, grid.tiles(), own, [&](int64_t begin, int64_t end) {
      convolve(x, weights, begin, end, tiles, blocks[static_cast<size_t>(at::get_thread_num())], to);
    });
  else
    convolve(x, weights, 0, grid.tiles(), tiles, blocks[0], to);
  return y;
}

/// The transforms of one block, and the sums of several.
template <class T, class P>
struct Part {
  TransformedBuffer<P> inputs, gradients;
  TransformedBuffer<Work<T>> sums;
};

/// Sums over tiles [begin, end), `tiles` at a time. Within a parallel region, all of it runs on the calling thread.
template <class T, class P>
void sum_gradients(const at::Tensor& g, const at::Tensor& x, int64_t begin, int64_t end, int64_t tiles,
                   const Part<T, P>& part) {
  const Grid grid = grid_of(x);
  const auto& kernels = tile_kernels<T, P>();
  in_blocks(begin, end, tiles, [&](int64_t first, int64_t last) {
    at::parallel_for(first, last, kGrain, [&](int64_t from, int64_t to) {
      kernels.inputs(x.const_data_ptr<T>(), grid, first, from, to, part.inputs);
      kernels.output_gradients(g.const_data_ptr<T>(), grid, first, from, to, part.gradients);
    });
    at_positions(part.sums.rows, kPanel, [&](int64_t position, int64_t from, int64_t to) {
      product_kernels<P>().outer_product(part.gradients.at_position(position), part.inputs.at_position(position),
                                         last - first, from, to, first > begin, part.sums.at_position(position));
    });
  });
}

template <class T, class P>
TransformedBuffer<Work<T>> transformed_weight_gradient(const at::Tensor& g, const at::Tensor& x) {
  const Grid grid = grid_of(x);
  const int64_t in = x.size(1), out = g.size(1), all = grid.tiles();
  TRAINOPT_CHECK(g.size(0) == grid.images && g.size(2) == grid.height && g.size(3) == grid.width);
  const bool in_parts = kPositions * in * out * int64_t{sizeof(Work<T>)} <= kOwnCacheBytes && all >= kParts * kOwnTiles;
  const int64_t count = in_parts ? kParts : 1;
  const int64_t tiles = in_parts ? kOwnTiles : tiles_in_block(grid, (in + out) * int64_t{sizeof(P)});
  std::vector<Part<T, P>> parts;
  for (int64_t part = 0; part < count; ++part)
    parts.push_back({{tiles, in, x.device()}, {tiles, out, x.device()}, {out, in, x.device()}});
  if (x.is_meta()) return std::move(parts[0].sums);
  const auto sum = [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      sum_gradients(g, x, all * part / count, all * (part + 1) / count, tiles, parts[static_cast<size_t>(part)]);
  };
  if (in_parts)
    at::parallel_for(0, count, 1, sum);
  else
    sum(0, 1);
  for (size_t part = 1; part < parts.size(); ++part) parts[0].sums.add(parts[part].sums);
  return std::move(parts[0].sums);
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

at::Tensor differentiable_convolution(const at::Tensor& input, const at::Tensor& weight, Products products) {
  RECORD_FUNCTION(kConvolutionLabel, std::vector<c10::IValue>({input}));
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    saved = {input, weight};
    return convolution(input, weight, products);
  };
  const auto backward = [products](const BackwardCall& call) -> std::vector<at::Tensor> {
    const at::Tensor &x = call.saved[0], &w = call.saved[1];
    RECORD_FUNCTION(kConvolutionGradientLabel, std::vector<c10::IValue>({x}));
    return {call.needed[0] ? input_gradient(call.gradient, w, products) : at::Tensor(),
            call.needed[1] ? weight_gradient(call.gradient, x, w.scalar_type(), products) : at::Tensor()};
  };
  return differentiable({input, weight}, forward, backward);
}

}  // namespace trainopt::kernels::winograd
