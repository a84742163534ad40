// Tests Winograd's convolution against libtorch's, in every type and shape, and its loops against each other for
// different vector widths.
#include "base/error.h"
#include "device/tensor.h"
#include "kernels/cpu/by_type.h"
#include "kernels/products/cpu/product_loops.h"
#include "kernels/winograd/cpu/tile_loops.h"
#include "kernels/winograd/winograd.h"
#include "support/autograd.h"
#include "support/catch.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>

using namespace trainopt;
using namespace trainopt::kernels;
using namespace trainopt::kernels::winograd;

namespace {

struct Case {
  int64_t images, in, out, height, width;
};
/// Complete tiles, tiles over either border, fewer pixels than a tile has; channels of one vector and of several,
/// numbers of channels that are and are not multiples of the rows of a product; several blocks of tiles, the last one
/// shorter; sums in parts, and over more tiles than a pass takes.
const std::vector<Case> kCases = {{1, 16, 16, 4, 4},    {2, 16, 48, 8, 8},   {3, 48, 16, 7, 7},   {1, 32, 80, 5, 9},
                                  {2, 16, 16, 1, 1},    {5, 16, 32, 1, 13},  {2, 32, 32, 14, 3},  {1, 64, 64, 56, 56},
                                  {3, 32, 32, 12, 12},  {33, 272, 16, 9, 6}, {64, 16, 528, 7, 5}, {40, 16, 512, 13, 9},
                                  {17, 32, 32, 28, 28}, {11, 96, 96, 28, 28}};

at::Tensor random(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, at::kDouble).to(type).contiguous(at::MemoryFormat::ChannelsLast);
}

/// ‖a − b‖ ÷ ‖b‖
double distance(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

struct Gradients {
  at::Tensor of_input, of_weight;
};
Gradients gradients_of_libtorch(const at::Tensor& g, const at::Tensor& x, const at::Tensor& w) {
  const auto [of_input, of_weight, of_bias] =
      at::convolution_backward(g.to(at::kDouble), x.to(at::kDouble), w.to(at::kDouble), std::nullopt, {1, 1}, {1, 1},
                               {1, 1}, false, {0, 0}, 1, {true, true, false});
  return {of_input, of_weight};
}

/// Sixteen values emulated without vector instructions: runs the loops for wide vectors on CPUs that lack them.
struct Emulated {
  using Number = float;
  struct Numbers {
    std::array<float, 16> v;
    template <class F>
    static Numbers each(const F& of) {
      Numbers all;
      for (size_t i = 0; i < all.v.size(); ++i) all.v[i] = of(i);
      return all;
    }
    friend Numbers operator+(const Numbers& a, const Numbers& b) {
      return each([&](size_t i) { return a.v[i] + b.v[i]; });
    }
    friend Numbers operator-(const Numbers& a, const Numbers& b) {
      return each([&](size_t i) { return a.v[i] - b.v[i]; });
    }
    friend Numbers operator*(const Numbers& a, const Numbers& b) {
      return each([&](size_t i) { return a.v[i] * b.v[i]; });
    }
  };
  static constexpr int64_t kLanes = 16;

  static Numbers load(const float* from) {
    return Numbers::each([&](size_t i) { return from[i]; });
  }
  static Numbers load(const c10::BFloat16* from) {
    return Numbers::each([&](size_t i) { return float{from[i]}; });
  }
  template <class T>
  static void store(T* to, const Numbers& values) {
    std::copy(values.v.begin(), values.v.end(), to);
  }
  static Numbers zero() { return of(0); }
  static Numbers of(float number) {
    return Numbers::each([&](size_t) { return number; });
  }
  static Numbers multiply_add(const Numbers& a, const Numbers& b, const Numbers& c) {
    return Numbers::each([&](size_t i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
};

template <class P>
struct Width {
  TileKernels<float, P> tiles;
  ProductKernels<P> products;
};

/// All results of one vector width for one case, concatenated.
template <class P>
std::vector<float> all_of(const Width<P>& width, const Grid& grid, int64_t in, int64_t out) {
  at::manual_seed(3);
  const int64_t tiles = grid.tiles(), pixels = grid.images * grid.height * grid.width;
  const auto filled = [](int64_t count) {
    const at::Tensor values = at::randn({count});
    return std::vector<float>(values.const_data_ptr<float>(), values.const_data_ptr<float>() + count);
  };
  const std::vector<float> image = filled(pixels * in), gradient = filled(pixels * out), weight = filled(out * 9 * in);
  std::vector<std::vector<P>> rooms;
  std::vector<std::vector<float>> rooms_of_sums;
  const auto buffer = [](auto& of, int64_t rows, int64_t channels) {
    of.reserve(8);
    of.emplace_back(static_cast<size_t>(kPositions * (rows * channels + kPanel)));
    return Transformed{
        .at = of.back().data(), .position = rows * channels + kPanel, .rows = rows, .channels = channels};
  };
  const auto inputs = buffer(rooms, tiles, in), weights = buffer(rooms, out, in), rotated = buffer(rooms, out, in),
             gradients = buffer(rooms, tiles, out);
  const auto products = buffer(rooms_of_sums, tiles, in), sums = buffer(rooms_of_sums, out, in);
  width.tiles.inputs(image.data(), grid, 0, 0, tiles, inputs);
  width.tiles.output_gradients(gradient.data(), grid, 0, 0, tiles, gradients);
  width.tiles.weights(weight.data(), false, 0, out, weights);
  width.tiles.weights(weight.data(), true, 0, out, rotated);
  for (int64_t position = 0; position < kPositions; ++position) {
    width.products.product(gradients.at_position(position), weights.at_position(position), 0, tiles,
                           products.at_position(position));
    width.products.outer_product(gradients.at_position(position), inputs.at_position(position), tiles, 0, out, false,
                                 sums.at_position(position));
    width.products.outer_product(gradients.at_position(position), inputs.at_position(position), tiles, 0, out, true,
                                 sums.at_position(position));
  }
  std::vector<float> outputs(static_cast<size_t>(pixels * in)), of_weight(weight.size());
  width.tiles.outputs(products, grid, 0, 0, tiles, outputs.data());
  width.tiles.weight_gradients(sums, 0, out, of_weight.data());
  std::vector<float> all;
  for (const auto& part : rooms) all.insert(all.end(), part.begin(), part.end());
  for (const auto& part : rooms_of_sums) all.insert(all.end(), part.begin(), part.end());
  all.insert(all.end(), outputs.begin(), outputs.end());
  all.insert(all.end(), of_weight.begin(), of_weight.end());
  return all;
}

}  // namespace

TEST_CASE("Winograd's convolution and its gradients match libtorch in every type and shape") {
  at::manual_seed(1);
  // The tolerance is about ten roundings for float32; for 16 bits, which are computed in float32, it is one rounding of
  // the result.
  for (const auto& [type, tolerance] :
       {std::pair(at::kDouble, 1e-13), {at::kFloat, 5e-6}, {at::kHalf, 5e-4}, {at::kBFloat16, 4e-3}})
    for (const auto& [images, in, out, height, width] : kCases) {
      INFO(type << ": " << images << " images, " << in << " to " << out << " channels, " << height << " × " << width);
      const at::Tensor x = random({images, in, height, width}, type), w = random({out, in, 3, 3}, type),
                       g = random({images, out, height, width}, type);
      const auto [of_input, of_weight] = gradients_of_libtorch(g, x, w);
      const at::Tensor y = convolution(x, w);
      CHECK(y.scalar_type() == type);
      CHECK(y.is_contiguous(at::MemoryFormat::ChannelsLast));
      CHECK(distance(y, at::conv2d(x.to(at::kDouble), w.to(at::kDouble), {}, 1, 1)) < tolerance);
      CHECK(distance(input_gradient(g, w), of_input) < tolerance);
      CHECK(distance(weight_gradient(g, x, type), of_weight) < tolerance);
    }
}

TEST_CASE("weights may be float32 with 16-bit images, and either may be stored as NCHW") {
  at::manual_seed(2);
  const at::Tensor x = at::randn({2, 32, 8, 8}).to(at::kBFloat16), w = at::randn({16, 32, 3, 3}),
                   g = at::randn({2, 16, 8, 8}).to(at::kBFloat16);
  const auto [of_input, of_weight] = gradients_of_libtorch(g, x, w);
  CHECK(distance(convolution(x, w), at::conv2d(x.to(at::kDouble), w.to(at::kDouble), {}, 1, 1)) < 4e-3);
  CHECK(distance(input_gradient(g, w), of_input) < 4e-3);
  CHECK(distance(weight_gradient(g, x, at::kFloat), of_weight) < 5e-6);
}

TEST_CASE("Winograd's gradients match finite differences in float64") {
  at::manual_seed(4);
  at::Tensor x = at::randn({1, 16, 5, 6}, at::kDouble).requires_grad_(),
             w = at::randn({16, 16, 3, 3}, at::kDouble).requires_grad_();
  const at::Tensor g = at::randn({1, 16, 5, 6}, at::kDouble);
  const auto gradients = torch::autograd::grad({(differentiable_convolution(x, w) * g).sum()}, {x, w});
  const at::NoGradGuard no_grad;
  for (size_t of = 0; of < 2; ++of) {
    at::Tensor numbers = (of == 0 ? x : w).view(-1);
    for (const int64_t at : {0, 17, 131, 250, 479}) {
      const auto loss = [&](double moved) {
        numbers[at] += moved;
        const double result = (differentiable_convolution(x, w) * g).sum().item<double>();
        numbers[at] -= moved;
        return result;
      };
      CHECK(gradients[of].reshape(-1)[at].item<double>() ==
            Approx((loss(1e-5) - loss(-1e-5)) / 2e-5).epsilon(1e-6).margin(1e-7));
    }
  }
}

TEST_CASE("vectors of any width give bit-identical results") {
  const Width<float> avx2{tiles_avx2<float, float>(), products_avx2()};
  const Width<float> emulated{tiles_of<Emulated, float>(), products_of<OneByOne<Emulated>, 12, 8, 2>()};
  for (const auto& [images, in, out, height, width] : kCases) {
    const Grid grid{.images = std::min<int64_t>(images, 7), .height = height, .width = width};
    const auto wanted = all_of(avx2, grid, in, out);
    CHECK(all_of(emulated, grid, in, out) == wanted);
    if (has_avx512()) CHECK(all_of<float>({tiles_avx512<float, float>(), products_avx512()}, grid, in, out) == wanted);
  }
}

TEST_CASE("products of bfloat16 are the same sums for vectors of any width") {
  using Half = c10::BFloat16;
  const Width<Half> avx2{tiles_avx2<float, Half>(), bfloat16_products_avx2()};
  const Width<Half> emulated{tiles_of<Emulated, float, Half>(), products_of<TwoByTwo<Emulated>, 8, 8, 2>()};
  for (const auto& [images, in, out, height, width] : kCases) {
    INFO(images << " images, " << in << " to " << out << " channels, " << height << " × " << width);
    const Grid grid{.images = std::min<int64_t>(images, 7), .height = height, .width = width};
    const auto wanted = all_of(avx2, grid, in, out);
    CHECK((all_of(emulated, grid, in, out) == wanted));
    if (has_avx512())
      CHECK((all_of<Half>({tiles_avx512<float, Half>(), bfloat16_products_avx512()}, grid, in, out) == wanted));
    if (!has_avx512_bf16()) continue;
    const auto paired = all_of<Half>({tiles_avx512_bf16<float>(), bfloat16_products_avx512_bf16()}, grid, in, out);
    CHECK(distance(at::tensor(paired), at::tensor(wanted)) < 1e-6);
  }
}

TEST_CASE("products of bfloat16 cost about one percent, whatever the images' type") {
  at::manual_seed(9);
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16})
    for (const auto& [images, in, out, height, width] : kCases) {
      INFO(type << ": " << images << " images, " << in << " to " << out << " channels, " << height << " × " << width);
      const at::Tensor x = random({images, in, height, width}, type), w = random({out, in, 3, 3}, type),
                       g = random({images, out, height, width}, type);
      const auto [of_input, of_weight] = gradients_of_libtorch(g, x, w);
      const bool is_large = x.numel() > 10'000;
      for (const double error :
           {distance(convolution(x, w, Products::bfloat16), at::conv2d(x.to(at::kDouble), w.to(at::kDouble), {}, 1, 1)),
            distance(input_gradient(g, w, Products::bfloat16), of_input),
            distance(weight_gradient(g, x, type, Products::bfloat16), of_weight)}) {
        CHECK(error < 2e-2);
        if (is_large) CHECK(error > 5e-3);
      }
    }
}

TEST_CASE("Winograd's results do not depend on the number of threads") {
  at::manual_seed(5);
  const int threads = at::get_num_threads();
  for (const auto& [images, in, out, height, width] : {Case{17, 64, 512, 21, 18}, Case{17, 32, 32, 28, 28}}) {
    const at::Tensor x = random({images, in, height, width}, at::kFloat), w = random({out, in, 3, 3}, at::kFloat),
                     g = random({images, out, height, width}, at::kFloat);
    std::vector<at::Tensor> wanted;
    for (const int count : {1, 2, 3, 20}) {  // of which the last share blocks
      at::set_num_threads(count);
      std::vector<at::Tensor> results;
      for (const Products products : {Products::full, Products::bfloat16})
        for (const auto& result :
             {convolution(x, w, products), input_gradient(g, w, products), weight_gradient(g, x, at::kFloat, products)})
          results.push_back(result);
      if (wanted.empty()) wanted = results;
      for (size_t i = 0; i < wanted.size(); ++i) CHECK(results[i].equal(wanted[i]));
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("a convolution whose input needs no gradient computes only the gradient of its weight") {
  at::manual_seed(8);
  const at::Tensor x = random({2, 32, 8, 8}, at::kFloat);
  at::Tensor w = random({32, 32, 3, 3}, at::kFloat).requires_grad_();
  const at::Tensor y = differentiable_convolution(x, w);
  const auto gradients = torch::autograd::grad({y}, {w}, {at::ones_like(y)});
  CHECK(gradients[0].strides() == w.strides());
  CHECK(distance(gradients[0], gradients_of_libtorch(at::ones_like(y), x, w.detach()).of_weight) < 5e-6);
}

TEST_CASE("Winograd refuses unsupported shapes and types") {
  const at::Tensor x = at::ones({2, 16, 8, 8}), w = at::ones({16, 16, 3, 3});
  CHECK_THROWS_AS(convolution(at::ones({0, 16, 8, 8}), w), BrokenInvariant);
  CHECK_THROWS_AS(convolution(at::ones({2, 32, 8, 8}), w), BrokenInvariant);
  CHECK_THROWS_AS(convolution(x, at::ones({16, 16, 1, 1})), BrokenInvariant);
  CHECK_THROWS_AS(convolution(x, at::ones({20, 16, 3, 3})), BrokenInvariant);
  CHECK_THROWS_AS(convolution(x, w.to(at::kDouble)), BrokenInvariant);
  CHECK_THROWS_AS(convolution(x.to(at::kDouble), w.to(at::kDouble), Products::bfloat16), BrokenInvariant);
  CHECK_THROWS_AS(weight_gradient(at::ones({1, 16, 8, 8}), x, at::kFloat), BrokenInvariant);
}

TEST_CASE("NaN is propagated, but only within its tiles") {
  at::Tensor x = at::ones({1, 16, 16, 16}), w = at::ones({16, 16, 3, 3});
  x[0][3][9][9] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor y = convolution(x, w), wanted = at::conv2d(x, w, {}, 1, 1);
  CHECK(y.isnan().logical_or(wanted.isnan().logical_not()).all().item<bool>());
  CHECK_FALSE(y.slice(2, 0, 4).isnan().any().item<bool>());  // no tile of the first row reads it
  CHECK(weight_gradient(y, x, at::kFloat).isnan().all().item<bool>());
}

TEST_CASE("CPU kernels run on as many threads as libtorch's") {
  // Calls the library rather than at::parallel_for here, which would be compiled into this file. Idle threads stay
  // alive.
  const auto all = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
  const at::Tensor x = random({17, 16, 21, 18}, at::kFloat), w = random({16, 16, 3, 3}, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(37);
  const auto before = all();
  convolution(x, w);
  const auto after = all();
  at::set_num_threads(threads);
  CHECK(after >= before + 30);
}
