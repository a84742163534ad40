// The transforms, for vectors of any width: `Lane` defines how values are loaded, computed and stored.
#pragma once

#include "kernels/winograd/tiles.h"

namespace trainopt::kernels::winograd {
namespace {

template <class Lane>
using Numbers = typename Lane::Numbers;

template <class Lane>
struct Computed {
  using N = Numbers<Lane>;
  static N times(double factor, N a) { return Lane::of(static_cast<typename Lane::Number>(factor)) * a; }
  /// factor · a + b
  static N times(double factor, N a, N b) {
    return Lane::multiply_add(Lane::of(static_cast<typename Lane::Number>(factor)), a, b);
  }
};

// Each struct is one side of a transform, for the points 0, ±2/3, ±3/2, ∞. Errors are half those of the usual points 0,
// ±1, ±2, ∞: among symmetric points these have about the smallest.

inline constexpr double kNear = 2.0 / 3, kFar = 1.5, kNear2 = kNear * kNear, kFar2 = kFar * kFar,
                        kNear3 = kNear * kNear2, kFar3 = kFar * kFar2;

template <class Lane>
struct InputSide : Computed<Lane> {  // Bᵀ
  static constexpr int kFrom = kInputTile, kTo = kInputTile;
  using R = Computed<Lane>;
  static void apply(const Numbers<Lane> (&d)[kFrom], Numbers<Lane> (&to)[kTo]) {
    const auto near_even = R::times(-kFar2, d[2], d[4]), near_odd = R::times(-kFar2, d[1], d[3]),
               far_even = R::times(-kNear2, d[2], d[4]), far_odd = R::times(-kNear2, d[1], d[3]);
    to[0] = R::times(-kNear2 - kFar2, d[2], d[0] + d[4]);  // kNear · kFar is 1
    to[1] = R::times(kNear, near_odd, near_even);
    to[2] = R::times(-kNear, near_odd, near_even);
    to[3] = R::times(kFar, far_odd, far_even);
    to[4] = R::times(-kFar, far_odd, far_even);
    to[5] = R::times(-kNear2 - kFar2, d[3], d[1] + d[5]);
  }
};

template <class Lane>
struct OutputSide {  // Aᵀ
  static constexpr int kFrom = kInputTile, kTo = kTile;
  using R = Computed<Lane>;
  static void apply(const Numbers<Lane> (&m)[kFrom], Numbers<Lane> (&to)[kTo]) {
    const auto near = m[1] + m[2], near_odd = m[1] - m[2], far = m[3] + m[4], far_odd = m[3] - m[4];
    to[0] = m[0] + near + far;
    to[1] = R::times(kFar, far_odd, R::times(kNear, near_odd));
    to[2] = R::times(kFar2, far, R::times(kNear2, near));
    to[3] = R::times(kFar3, far_odd, R::times(kNear3, near_odd, m[5]));
  }
};

template <class Lane>
struct OutputGradientSide {  // A
  static constexpr int kFrom = kTile, kTo = kInputTile;
  using R = Computed<Lane>;
  static void apply(const Numbers<Lane> (&y)[kFrom], Numbers<Lane> (&to)[kTo]) {
    const auto near_even = R::times(kNear2, y[2], y[0]), near_odd = R::times(kNear2, y[3], y[1]),
               far_even = R::times(kFar2, y[2], y[0]), far_odd = R::times(kFar2, y[3], y[1]);
    to[0] = y[0];
    to[1] = R::times(kNear, near_odd, near_even);
    to[2] = R::times(-kNear, near_odd, near_even);
    to[3] = R::times(kFar, far_odd, far_even);
    to[4] = R::times(-kFar, far_odd, far_even);
    to[5] = y[3];
  }
};

template <class Lane>
struct WeightSide {  // G, times 130
  static constexpr int kFrom = kKernel, kTo = kInputTile;
  using R = Computed<Lane>;
  static void apply(const Numbers<Lane> (&g)[kFrom], Numbers<Lane> (&to)[kTo]) {
    const auto near = R::times(-81, g[0], R::times(-36, g[2])), far = R::times(16, g[0], R::times(36, g[2]));
    to[0] = R::times(130, g[0]);
    to[1] = R::times(-54, g[1], near);
    to[2] = R::times(54, g[1], near);
    to[3] = R::times(24, g[1], far);
    to[4] = R::times(-24, g[1], far);
    to[5] = R::times(130, g[2]);
  }
};

template <class Lane>
struct WeightGradientSide {  // Gᵀ, times 130
  static constexpr int kFrom = kInputTile, kTo = kKernel;
  using R = Computed<Lane>;
  static void apply(const Numbers<Lane> (&u)[kFrom], Numbers<Lane> (&to)[kTo]) {
    const auto near = u[1] + u[2], near_odd = u[2] - u[1], far = u[3] + u[4], far_odd = u[3] - u[4];
    to[0] = R::times(130, u[0], R::times(-81, near, R::times(16, far)));
    to[1] = R::times(54, near_odd, R::times(24, far_odd));
    to[2] = R::times(130, u[5], R::times(36, far - near));
  }
};

inline constexpr double kWeightScale = 1.0 / (130 * 130);  ///< undoes both factors of 130

/// Applies both sides: load(row, column) returns a value, store(row, column, value) takes one.
template <class Lane, template <class> class Side, class Load, class Store>
[[gnu::always_inline]] inline void transform(const Load& load, const Store& store) {
  constexpr int kFrom = Side<Lane>::kFrom, kTo = Side<Lane>::kTo;
  Numbers<Lane> half[kFrom][kTo];
#pragma GCC unroll 6
  for (int row = 0; row < kFrom; ++row) {
    Numbers<Lane> line[kFrom];
#pragma GCC unroll 6
    for (int column = 0; column < kFrom; ++column) line[column] = load(row, column);
    Side<Lane>::apply(line, half[row]);
  }
#pragma GCC unroll 6
  for (int column = 0; column < kTo; ++column) {
    Numbers<Lane> line[kFrom], done[kTo];
#pragma GCC unroll 6
    for (int row = 0; row < kFrom; ++row) line[row] = half[row][column];
    Side<Lane>::apply(line, done);
#pragma GCC unroll 6
    for (int row = 0; row < kTo; ++row) store(row, column, done[row]);
  }
}

/// Address of (row, channel) at the first position.
template <class Lane, class W>
W* number(const Transformed<W>& of, int64_t row, int64_t channel) {
  return of.panel(0, channel) + row * kPanel + channel % kPanel;
}

/// Offsets of the pixels of a tile from the first image: kSide × kSide pixels, starting `shift` down and right of its
/// first output.
template <int kSide>
struct Pixels {
  static constexpr int64_t kOutside = -1;
  int64_t at[kSide][kSide];
  bool all_inside = true;

  Pixels() = default;
  Pixels(const Grid& grid, int64_t channels, int64_t tile, int64_t shift) {
    const int64_t columns = grid.columns(), in_image = grid.rows() * columns, image = tile / in_image;
    const int64_t top = tile % in_image / columns * kTile + shift, left = tile % columns * kTile + shift;
    for (int64_t y = 0; y < kSide; ++y)
      for (int64_t x = 0; x < kSide; ++x) {
        const int64_t down = top + y, right = left + x;
        const bool outside = down < 0 || down >= grid.height || right < 0 || right >= grid.width;
        at[y][x] = outside ? kOutside : ((image * grid.height + down) * grid.width + right) * channels;
        all_inside &= !outside;
      }
  }
};

/// Calls work(pixels, tile, channel) for each vector of channels of a tile. Goes panel by panel over a group of tiles,
/// so that transformed values are accessed sequentially.
template <class Lane, int kSide, class F>
[[gnu::always_inline]] inline void over_tiles(const Grid& grid, int64_t channels, int64_t shift, int64_t begin,
                                              int64_t end, const F& work) {
  constexpr int64_t kGroup = 16;
  for (int64_t first = begin; first < end; first += kGroup) {
    const int64_t count = end - first < kGroup ? end - first : kGroup;
    Pixels<kSide> pixels[kGroup];
    for (int64_t i = 0; i < count; ++i) pixels[i] = Pixels<kSide>(grid, channels, first + i, shift);
    for (int64_t panel = 0; panel < channels; panel += kPanel)
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = panel; c < panel + kPanel; c += Lane::kLanes) work(pixels[i], first + i, c);
  }
}

/// `shift`: from the first output of a tile to the first value that it reads.
template <class Lane, template <class> class Side, class T, class P>
void into_tiles(const T* image, const Grid& grid, int64_t shift, int64_t first, int64_t begin, int64_t end,
                const Transformed<P>& to) {
  over_tiles<Lane, Side<Lane>::kFrom>(
      grid, to.channels, shift, begin, end, [&](const auto& pixels, int64_t tile, int64_t c) {
        const auto store = [out = number<Lane>(to, tile - first, c), position = to.position](int y, int x,
                                                                                             Numbers<Lane> v) {
          Lane::store(out + (y * kInputTile + x) * position, v);
        };
        if (pixels.all_inside)
          transform<Lane, Side>([&](int y, int x) { return Lane::load(image + pixels.at[y][x] + c); }, store);
        else
          transform<Lane, Side>(
              [&](int y, int x) {
                return pixels.at[y][x] < 0 ? Lane::zero() : Lane::load(image + pixels.at[y][x] + c);
              },
              store);
      });
}

template <class Lane, class T, class P>
void inputs(const T* image, const Grid& grid, int64_t first, int64_t begin, int64_t end, const Transformed<P>& to) {
  into_tiles<Lane, InputSide>(image, grid, -1, first, begin, end, to);
}

template <class Lane, class T, class P>
void output_gradients(const T* image, const Grid& grid, int64_t first, int64_t begin, int64_t end,
                      const Transformed<P>& to) {
  into_tiles<Lane, OutputGradientSide>(image, grid, 0, first, begin, end, to);
}

template <class Lane, class T>
void outputs(const Transformed<Work<T>>& from, const Grid& grid, int64_t first, int64_t begin, int64_t end, T* image) {
  over_tiles<Lane, kTile>(grid, from.channels, 0, begin, end, [&](const auto& pixels, int64_t tile, int64_t c) {
    transform<Lane, OutputSide>([in = number<Lane>(from, tile - first, c), position = from.position](
                                    int y, int x) { return Lane::load(in + (y * kInputTile + x) * position); },
                                [&](int y, int x, Numbers<Lane> v) {
                                  if (pixels.at[y][x] >= 0) Lane::store(image + pixels.at[y][x] + c, v);
                                });
  });
}

/// Calls work(row, channel) for each vector of the transformed weights, in memory order.
template <class Lane, class F>
[[gnu::always_inline]] inline void over_weights(int64_t channels, int64_t begin, int64_t end, const F& work) {
  for (int64_t panel = 0; panel < channels; panel += kPanel)
    for (int64_t row = begin; row < end; ++row)
      for (int64_t c = panel; c < panel + kPanel; c += Lane::kLanes) work(row, c);
}

template <class Lane, class T, class P>
void weights(const T* numbers, bool rotated, int64_t begin, int64_t end, const Transformed<P>& to) {
  constexpr int kTaps = kKernel * kKernel;
  over_weights<Lane>(to.channels, begin, end, [&](int64_t row, int64_t c) {
    const T* const from = numbers + row * kTaps * to.channels + c;
    transform<Lane, WeightSide>(
        [&](int y, int x) {
          const int tap = y * kKernel + x;
          return Lane::load(from + (rotated ? kTaps - 1 - tap : tap) * to.channels);
        },
        [out = number<Lane>(to, row, c), position = to.position](int y, int x, Numbers<Lane> v) {
          Lane::store(out + (y * kInputTile + x) * position, Computed<Lane>::times(kWeightScale, v));
        });
  });
}

template <class Lane, class T>
void weight_gradients(const Transformed<Work<T>>& from, int64_t begin, int64_t end, T* gradients) {
  over_weights<Lane>(from.channels, begin, end, [&](int64_t row, int64_t c) {
    T* const to = gradients + row * kKernel * kKernel * from.channels + c;
    transform<Lane, WeightGradientSide>([in = number<Lane>(from, row, c), position = from.position](
                                            int y, int x) { return Lane::load(in + (y * kInputTile + x) * position); },
                                        [&](int y, int x, Numbers<Lane> v) {
                                          Lane::store(to + (y * kKernel + x) * from.channels,
                                                      Computed<Lane>::times(kWeightScale, v));
                                        });
  });
}

template <class Lane, class T, class P = Work<T>>
constexpr TileKernels<T, P> tiles_of() {
  return {.inputs = inputs<Lane, T, P>,
          .outputs = outputs<Lane, T>,
          .output_gradients = output_gradients<Lane, T, P>,
          .weights = weights<Lane, T, P>,
          .weight_gradients = weight_gradients<Lane, T>};
}

}  // namespace
}  // namespace trainopt::kernels::winograd
