// 3×3 convolutions by Winograd's minimal filtering: a quarter of the multiplications, which are what bounds
// convolutions on a CPU.
#pragma once

#include "config/describe.h"
#include "optimizations/info.h"

#include <memory>

namespace trainopt {
class ConvolutionOperations;
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::winograd {

inline constexpr Info kInfo{"winograd", Exactness::same_math, 1e-3};
/// The variant whose products are bfloat16.
inline constexpr Info kRoundedInfo{"winograd", Exactness::new_math};

/// What the products of transformed values read; sums are float32.
enum class ProductType { float32, bfloat16 };

struct Config {
  ProductType products = ProductType::float32;
};

Outcome apply(Plan& plan, const Config& config);

}  // namespace trainopt::winograd

template <>
struct trainopt::Choices<trainopt::winograd::ProductType> {
  static constexpr std::array all = {Choice<winograd::ProductType>{"float32", winograd::ProductType::float32},
                                     Choice<winograd::ProductType>{"bfloat16", winograd::ProductType::bfloat16}};
};

namespace trainopt::winograd {

template <class V>
void describe(V& v, Config& c) {
  v.field("products", c.products,
          "float32, whatever the images' type; bfloat16: twice as many a second on CPUs with AVX512_BF16, with errors "
          "of about 1 %.");
}

// A network's convolutions and their gradients by Winograd's minimal filtering.

/// Takes 3×3 convolutions with stride 1 and padding 1 on the CPU where that pays, and leaves all others to libtorch.
/// Converts inputs that are not channels-last.
std::unique_ptr<ConvolutionOperations> make_convolutions(const Config& config);

}  // namespace trainopt::winograd
