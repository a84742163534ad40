#include "model/initial_values.h"

#include "base/error.h"
#include "base/philox.h"
#include "device/tensor.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <numbers>

namespace trainopt {
namespace {

constexpr int64_t kDrawsPerBlock = 4;
constexpr float kTruncatedAt = 2;

/// In the open interval (0, 1). 32 bits suffice: normal draws reach 6.7 standard deviations.
double unit(uint32_t bits) { return (bits + 0.5) * 0x1p-32; }

/// The block's four draws of an attempt. In double, so that last-bit differences between maths libraries vanish in
/// float32.
std::array<float, kDrawsPerBlock> draw(const InitialValues& values, uint64_t key, int64_t block, uint64_t attempt) {
  const PhiloxBlock bits = philox(key, attempt, static_cast<uint64_t>(block));
  std::array<float, kDrawsPerBlock> drawn{};
  if (values.kind == InitialValues::Kind::uniform) {
    for (size_t i = 0; i < 4; ++i) drawn[i] = static_cast<float>(values.amount * (2 * unit(bits[i]) - 1));
    return drawn;
  }
  for (size_t i = 0; i < 4; i += 2) {  // Box–Muller
    const double radius = values.amount * std::sqrt(-2 * std::log(unit(bits[i])));
    const double angle = 2 * std::numbers::pi * unit(bits[i + 1]);
    drawn[i] = static_cast<float>(radius * std::cos(angle));
    drawn[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return drawn;
}

/// The block's four values: what an attempt draws outside the bounds, if there are bounds, the next one replaces.
std::array<float, kDrawsPerBlock> values_of_block(const InitialValues& values, uint64_t key, int64_t block) {
  auto drawn = draw(values, key, block, 0);
  if (values.kind != InitialValues::Kind::truncated_normal) return drawn;
  const auto outside = [](float value) { return std::abs(value) > kTruncatedAt; };
  for (uint64_t attempt = 1; std::any_of(drawn.begin(), drawn.end(), outside); ++attempt) {
    const auto again = draw(values, key, block, attempt);
    for (size_t i = 0; i < drawn.size(); ++i)
      if (outside(drawn[i])) drawn[i] = again[i];
  }
  return drawn;
}

void fill_blocks(float* target, int64_t count, const InitialValues& values, uint64_t key, int64_t first_block,
                 int64_t last_block) {
  for (int64_t block = first_block; block < last_block; ++block) {
    const auto drawn = values_of_block(values, key, block);
    const int64_t begin = block * kDrawsPerBlock;
    std::copy_n(drawn.begin(), std::min(kDrawsPerBlock, count - begin), target + begin);
  }
}

}  // namespace

InitialValues InitialValues::kaiming_normal(int64_t fan_out) {
  return {Kind::normal, std::sqrt(2.0 / static_cast<double>(fan_out))};
}
InitialValues InitialValues::torch_linear(int64_t fan_in) {
  return {Kind::uniform, 1.0 / std::sqrt(static_cast<double>(fan_in))};
}

InitialValues InitialValues::xavier_uniform(int64_t fan_in, int64_t fan_out) {
  return {Kind::uniform, std::sqrt(6.0 / static_cast<double>(fan_in + fan_out))};
}

void fill_initial_values(const at::Tensor& tensor, const InitialValues& values, uint64_t seed,
                         const std::string& name) {
  TRAINOPT_CHECK(tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous());
  float* target = tensor.mutable_data_ptr<float>();
  const int64_t count = tensor.numel();
  if (values.kind == InitialValues::Kind::constant) {
    std::fill_n(target, count, static_cast<float>(values.amount));
    return;
  }
  const uint64_t key = mix_key(seed, name);
  const int64_t blocks = (count + kDrawsPerBlock - 1) / kDrawsPerBlock;
  const int64_t half = blocks / 2;
  std::future<void> other;
  if (blocks > (1 << 15))  // large enough for a second thread
    other = std::async(std::launch::async, fill_blocks, target, count, values, key, half, blocks);
  fill_blocks(target, count, values, key, 0, other.valid() ? half : blocks);
  if (other.valid()) other.get();
}

}  // namespace trainopt
