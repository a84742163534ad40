#include "optimizations/precision/stochastic_rounding.h"

#include "base/philox.h"
#include "device/tensor.h"

#include <algorithm>

namespace trainopt::precision {
namespace {

constexpr uint64_t kRounding = 0x726f756e64696e67;  // separates these draws from those of the initial weights
constexpr int64_t kKeptBits = ~int64_t{0xffff};     // bits of a float32 that bfloat16 keeps
constexpr int64_t kPieceValues = int64_t{1} << 22;  // values rounded at once: limits the temporary memory

class StochasticRounding : public WeightRounding {
 public:
  StochasticRounding(uint64_t seed, const int64_t* steps_done, bool for_cpu)
      : key_(mix_key(seed, kRounding)), steps_done_(steps_done), for_cpu_(for_cpu) {}

  void store(const std::string& name, const at::Tensor& values, const at::Tensor& parameter) const override {
    const auto step = static_cast<uint64_t>(*steps_done_);
    const uint64_t key = mix_key(key_, name);
    const int64_t rows = values.size(0), row_values = values.numel() / rows;
    const int64_t at_once = std::max<int64_t>(1, kPieceValues / row_values);
    const int64_t end =
        values.is_meta() ? std::min(at_once, rows) : rows;  // shapes only: all pieces need the same memory
    for (int64_t row = 0; row < end; row += at_once) {
      const int64_t count = std::min(at_once, rows - row);
      const at::Tensor piece = values.narrow(0, row, count);
      const HalvesRange range{.first = row * row_values, .count = piece.numel()};
      const at::Tensor halves = values.is_meta() && for_cpu_
                                    ? at::empty({range.count}, values.options().dtype(at::kInt))
                                    : random_halves(range, key, step, values.device());
      parameter.narrow(0, row, count).copy_(rounded_stochastically(piece, halves.view(piece.sizes())));
    }
  }

 private:
  uint64_t key_;
  const int64_t* steps_done_;
  bool for_cpu_;
};

}  // namespace

at::Tensor rounded_stochastically(const at::Tensor& values, const at::Tensor& halves) {
  // The sum carries into the bits that are kept with the probability of the part that is dropped. The bits of a float's
  // magnitude are ordered as its values are, also from one exponent to the next.
  const at::Tensor kept = (values.view(at::kInt) + halves).bitwise_and_(kKeptBits).view(at::kFloat);
  return at::where(at::isfinite(values), kept, values).to(at::kBFloat16);
}

std::unique_ptr<WeightRounding> make_stochastic_rounding(uint64_t seed, const int64_t* steps_done, bool for_cpu) {
  return std::make_unique<StochasticRounding>(seed, steps_done, for_cpu);
}

namespace {

constexpr int64_t kHalves = 8, kBlocksPerThread = 4096;
constexpr int64_t kWord = 0xffffffff, kHalf = 0xffff;

int64_t first_block(const HalvesRange& range) { return range.first / kHalves; }
int64_t end_block(const HalvesRange& range) { return (range.first + range.count + kHalves - 1) / kHalves; }

/// The numbers in `range`, from all numbers of its blocks.
at::Tensor in_range(const at::Tensor& numbers, const HalvesRange& range) {
  return numbers.narrow(0, range.first % kHalves, range.count);
}

at::Tensor low_word(const at::Tensor& number) { return number.bitwise_and(kWord); }
at::Tensor high_word(const at::Tensor& number) { return number.bitwise_right_shift(32).bitwise_and_(kWord); }

}  // namespace

at::Tensor random_halves(const HalvesRange& range, uint64_t key, uint64_t step, at::Device device) {
  if (!device.is_cpu()) return random_halves_by_operations(range, key, step, device);
  const int64_t first = first_block(range), blocks = end_block(range) - first;
  const at::Tensor all = at::empty({blocks * kHalves}, at::kInt);
  int32_t* const out = all.mutable_data_ptr<int32_t>();
  at::parallel_for(0, blocks, kBlocksPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const PhiloxBlock words = philox(key, step, static_cast<uint64_t>(first + block));
      for (size_t i = 0; i < words.size(); ++i) {
        out[block * kHalves + 2 * static_cast<int64_t>(i)] = static_cast<int32_t>(words[i] & kHalf);
        out[block * kHalves + 2 * static_cast<int64_t>(i) + 1] = static_cast<int32_t>(words[i] >> 16);
      }
    }
  });
  return in_range(all, range);
}

at::Tensor random_halves_by_operations(const HalvesRange& range, uint64_t key, uint64_t step, at::Device device) {
  // base/philox.cpp, with words in int64: the products wrap as those of uint64 do.
  constexpr int64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const at::Tensor block = at::arange(first_block(range), end_block(range), options);
  std::array<at::Tensor, 4> c{low_word(block), high_word(block),
                              at::full({}, static_cast<int64_t>(step & kWord), options),
                              at::full({}, static_cast<int64_t>(step >> 32), options)};
  for (int round = 0; round < 10; ++round, k0 += kWeyl0, k1 += kWeyl1) {
    const at::Tensor p0 = c[0] * kMultiplier0, p1 = c[2] * kMultiplier1;
    c = {high_word(p1).bitwise_xor(c[1]).bitwise_xor_(static_cast<int64_t>(k0)), low_word(p1),
         high_word(p0).bitwise_xor(c[3]).bitwise_xor_(static_cast<int64_t>(k1)), low_word(p0)};
  }
  const at::Tensor words = at::stack({c[0], c[1].expand_as(c[0]), c[2], c[3]}, 1);
  return in_range(at::stack({words.bitwise_and(kHalf), words.bitwise_right_shift(16)}, 2).to(at::kInt).flatten(),
                  range);
}

}  // namespace trainopt::precision
