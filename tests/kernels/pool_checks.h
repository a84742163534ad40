// Checks that every implementation of PoolKernels must pass, on any device: results match the reference in every type
// and shape.
#pragma once

#include "kernels/norm_checks.h"
#include "kernels/pool/pool.h"

namespace trainopt::test {

/// Compares every pass over `x` with the reference.
inline void check_pool_passes(const PoolKernels& fast, const at::Tensor& x) {
  const PoolKernels& plain = reference_pool_kernels();
  const ByChannel by(x.size(1), x.device());
  const double once = 2 * epsilon(x.scalar_type());
  const Pooled pooled = fast.pool(x, by.scale, by.shift), wanted = plain.pool(x, by.scale, by.shift);
  check_near(pooled.values, wanted.values, once);
  const at::Tensor same = pooled.positions == wanted.positions;
  CHECK(same.to(at::kDouble).mean().item<double>() > 0.999);  // two values may differ only by rounding
  CHECK((pooled.chosen == wanted.chosen)
            .logical_or(same.logical_not())
            .logical_or(wanted.positions == 9)
            .all()
            .item<bool>());
  const at::Tensor of_pool = random(pooled.values.sizes().vec(), x.scalar_type(), x.device());
  const int64_t count = x.numel() / x.size(1);
  const Coefficients coefficients = plain.coefficients(of_pool, pooled, by, count);
  check_near(fast.coefficients(of_pool, pooled, by, count), coefficients, 1e-5);
  check_near(fast.input_gradient(of_pool, pooled.positions, x, by, coefficients),
             plain.input_gradient(of_pool, pooled.positions, x, by, coefficients), once);
}

inline void check_every_pool_pass(const PoolKernels& fast, at::Device device) {
  at::manual_seed(3);
  for (const auto type : kNormTypes)
    for (const auto& shape : kNormShapes) {
      INFO(type << " " << at::IntArrayRef(shape));
      check_pool_passes(fast, random(shape, type, device, 2, 1));
    }
}

/// NaN and infinity are propagated.
inline void check_pool_not_a_number(const PoolKernels& fast, at::Device device) {
  at::manual_seed(5);
  for (const auto type : kNormTypes)
    for (const int64_t channels : {3, 8, 19, 32}) {
      INFO(type << " " << channels);
      at::Tensor x = random({2, channels, 6, 6}, type, device);
      const ByChannel by(channels, device);
      x[1][2][3][3] = std::numeric_limits<float>::quiet_NaN();
      x[0][1][0][0] = std::numeric_limits<float>::infinity();
      const Pooled pooled = fast.pool(x, by.scale, by.shift),
                   plain = reference_pool_kernels().pool(x, by.scale, by.shift);
      CHECK(pooled.values.isnan().equal(plain.values.isnan()));
      CHECK((pooled.positions == plain.positions).logical_or(plain.values.isnan()).all().item<bool>());
    }
}

/// The pool chooses the first of equal values, whatever the sign of the scale and of zeros. NaN of either sign passes
/// through. A scale of 0 makes all values equal.
inline void check_pool_choices(const PoolKernels& fast, at::Device device) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor levels = at::tensor({-1.0f, -0.0f, 0.0f, 0.5f, 1.0f});
  struct Case {
    const char* name;
    float scale, shift;  // for one channel; the others have ±1 and 1
  };
  at::manual_seed(11);
  for (const auto type : kNormTypes)
    for (const int64_t channels : {5, 35, 64, 75})
      for (const Case& one : {Case{"positive", 2, 0},
                              {"negative", -0.5, 0.25},
                              {"zero", 0, 1},
                              {"infinite", kInfinite, 0},
                              {"NaN", kNan, 0},
                              {"shift infinite", 1, kInfinite},
                              {"shift NaN", -1, kNan}})
        for (const float special : {0.5f, kNan, -kNan, kInfinite, -kInfinite}) {
          INFO(type << " " << channels << " " << one.name << " " << special);
          at::Tensor x =
              levels.index_select(0, at::randint(5, {2 * channels * 9 * 8}, at::kLong)).view({2, channels, 9, 8});
          x[1][2][4][3] = special;
          x[0][channels - 1][5][5] = special;
          x = x.to(device, type).contiguous(at::MemoryFormat::ChannelsLast);
          at::Tensor scale = at::randint(2, {channels}, at::kFloat) * 2 - 1, shift = at::ones({channels});
          scale[2] = one.scale, shift[2] = one.shift;
          const Pooled pooled = fast.pool(x, scale.to(device), shift.to(device)),
                       plain = reference_pool_kernels().pool(x, scale.to(device), shift.to(device));
          const at::Tensor number = plain.values.isnan().logical_not();
          CHECK(pooled.values.isnan().logical_not().equal(number));
          CHECK(pooled.values.masked_select(number).equal(plain.values.masked_select(number)));
          CHECK(pooled.positions.masked_select(number).equal(plain.positions.masked_select(number)));
          const at::Tensor chosen = number.logical_and(plain.positions != 9);
          CHECK(pooled.chosen.masked_select(chosen).equal(plain.chosen.masked_select(chosen)));
        }
}

}  // namespace trainopt::test
