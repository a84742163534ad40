// Mixed precision: convolutions and matrix products in 16 bits, parameters and sums in float32 (Micikevicius et al.
// 2018).
#pragma once

#include "config/describe.h"
#include "optimizations/info.h"

#include <cstdint>
#include <memory>

namespace c10 {
enum class ScalarType : int8_t;
}

namespace trainopt {
class ConvolutionOperations;
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::amp {

inline constexpr Info kInfo{"amp", Exactness::same_math, 5e-2};

enum class Type { bfloat16, float16 };

struct Config {
  Type dtype = Type::bfloat16;
  double init_scale = 65536;
  int64_t growth_interval = 2000;
};

void check(OptionChecks& checks, const Config& config);
Outcome apply(Plan& plan, const Config& config);

}  // namespace trainopt::amp

template <>
struct trainopt::Choices<trainopt::amp::Type> {
  static constexpr std::array all = {
      Choice<amp::Type>{"bfloat16", amp::Type::bfloat16}, Choice<amp::Type>{"float16", amp::Type::float16},
      Choice<amp::Type>{"bf16", amp::Type::bfloat16}, Choice<amp::Type>{"fp16", amp::Type::float16}};
};

namespace trainopt::amp {

template <class V>
void describe(V& v, Config& c) {
  v.field("dtype", c.dtype,
          "bfloat16 needs no loss scaling; float16 scales the loss so that small gradients do not underflow.");
  v.field("init_scale", c.init_scale, "float16: initial loss scale.", above(0));
  v.field("growth_interval", c.growth_interval, "float16: steps without overflow after which the loss scale doubles.",
          in_range(1, 1e9));
}

// Convolutions on 16-bit tensors for CPUs without 16-bit instructions.

/// Labels posted with the input, as train/observe/step_trace.h requires for convolutions.
inline constexpr const char *kConvolutionLabel = "trainopt::float32_convolution",
                            *kConvolutionGradientLabel = "trainopt::float32_convolution_backward";

/// Whether libtorch passes convolutions of this type (bfloat16, float16) to oneDNN on this CPU. If not, its own loops
/// take at least ten times as long as float32.
bool cpu_convolves(c10::ScalarType type);

/// Convolutions under autocast: inputs and outputs have autocast's type, products and sums are float32. Without
/// autocast, and for convolutions that `inner` takes, calls `inner`.
std::unique_ptr<ConvolutionOperations> make_float32_convolutions(std::unique_ptr<ConvolutionOperations> inner);

}  // namespace trainopt::amp
