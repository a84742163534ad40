#include "optimizations/precision/stochastic_rounding.h"

#include "base/philox.h"
#include "device/tensor.h"
#include "optimizations/precision/random_halves.h"

#include <algorithm>

namespace trainopt::precision {
namespace {

constexpr uint64_t kRounding = 0x726f756e64696e67;  // separates these draws from those of the initial weights
constexpr int64_t kKeptBits = ~int64_t{0xffff};     // of float32, in bfloat16
constexpr int64_t kPieceValues = int64_t{1} << 22;  // rounded at once: limits the temporary memory

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

}  // namespace trainopt::precision
