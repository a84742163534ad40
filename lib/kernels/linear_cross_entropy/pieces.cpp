#include "kernels/linear_cross_entropy/pieces.h"

#include "base/error.h"
#include "device/product.h"
#include "device/tensor.h"
#include "kernels/head/head.h"

#include <ATen/ops/addmm.h>

#include <algorithm>

namespace trainopt::kernels {
namespace {

constexpr int64_t kLine = 64;  // bytes
/// The buffer has this part of the bytes that the logits would have in the operands' type: with their gradient, twice
/// as much.
constexpr int64_t kPart = 4;
/// Fewer rows make the products inefficient, since each piece reads the weight and reads and writes its gradient. More
/// than the most gain nothing.
constexpr int64_t kLeastRows = 64, kMostRows = 4096;
/// Classes of the weight's gradient whose 16-bit product is added to float32 while it is in a cache.
constexpr int64_t kBlock = 4096;

int64_t divided_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

int64_t bytes_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

/// sum ← sum + factor · a · b, with a float32 sum.
void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b, double factor) {
  if (a.scalar_type() == at::kFloat) {
    add_product_out(sum, a, b, factor);
  } else if (a.is_cuda()) {
    at::addmm_out(sum, sum, a, b, at::kFloat, 1, factor);
  } else {  // no product of 16-bit operands has a float32 result here
    const int64_t rows = sum.size(0);
    at::Tensor block = at::empty({std::min(kBlock, rows), sum.size(1)}, b.options());
    for (int64_t first = 0; first < rows; first += kBlock) {
      const int64_t count = std::min(kBlock, rows - first);
      at::Tensor product = block.narrow(0, 0, count);
      at::addmm_out(product, product, a.narrow(0, first, count), b, /*beta=*/0, factor);
      sum.narrow(0, first, count).add_(product);
    }
  }
}

at::Tensor zeros(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::zeros(sizes, like.options().dtype(at::kFloat).requires_grad(false));
}

}  // namespace

Pieces LinearCrossEntropyInPieces::pieces(int64_t rows, int64_t classes, at::ScalarType type) const {
  const int64_t size = bytes_of(product_type(type)), fair = divided_up(rows * bytes_of(type), kPart * size);
  Pieces pieces{.rows = std::min(rows, std::clamp(fair, kLeastRows, kMostRows)), .count = 0, .stride = 0, .bytes = 0};
  pieces.count = divided_up(rows, pieces.rows);
  pieces.rows = divided_up(rows, pieces.count);  // about equal
  // Rows start at a line, which products need to be fast; an odd number of lines spreads a column over all cache sets.
  pieces.stride = (divided_up(classes * size, kLine) | 1) * kLine / size;
  pieces.bytes = pieces.rows * pieces.stride * size;
  return pieces;
}

LinearCrossEntropy LinearCrossEntropyInPieces::run(const at::Tensor& hidden, const at::Tensor& weight,
                                                   const at::Tensor& target, WantedGradients wanted) const {
  TRAINOPT_CHECK(hidden.dim() == 2 && hidden.is_contiguous() && hidden.size(0) > 0);
  TRAINOPT_CHECK(weight.dim() == 2 && weight.is_contiguous() && weight.size(1) == hidden.size(1) &&
                 weight.size(0) > 0 && weight.device() == hidden.device() &&
                 weight.scalar_type() == hidden.scalar_type());
  TRAINOPT_CHECK(target.dim() == 1 && target.is_contiguous() && target.size(0) == hidden.size(0) &&
                 target.device() == hidden.device() && target.scalar_type() == at::kLong);
  const int64_t rows = hidden.size(0), classes = weight.size(0);
  check(hidden, target, classes);

  const at::NoGradGuard no_grad;
  const at::ScalarType type = product_type(hidden.scalar_type());
  const Pieces pieces = this->pieces(rows, classes, hidden.scalar_type());
  LinearCrossEntropy result{.loss = zeros({}, hidden), .of_hidden = {}, .of_weight = {}, .share = zeros({}, hidden)};
  if (wanted.of_hidden) result.of_hidden = zeros(hidden.sizes(), hidden);
  if (wanted.of_weight) result.of_weight = zeros(weight.sizes(), weight);
  const at::Tensor losses = zeros({rows}, hidden), factors = weight.to(type),
                   memory = at::empty({pieces.rows, pieces.stride}, factors.options().requires_grad(false));
  const double factor = 1 / static_cast<double>(stored_gradient_scale(type));
  for (int64_t first = 0; first < rows; first += pieces.rows) {
    const int64_t count = std::min(pieces.rows, rows - first);
    const at::Tensor buffer = memory.narrow(0, 0, count), states = hidden.narrow(0, first, count).to(type);
    at::Tensor logits = buffer.narrow(1, 0, classes);
    product_out(logits, states, factors.t());
    this->losses({.buffer = buffer,
                  .classes = classes,
                  .target = target.narrow(0, first, count),
                  .losses = losses.narrow(0, first, count),
                  .with_gradient = wanted.any()});
    if (wanted.of_hidden) add_product(result.of_hidden.narrow(0, first, count), logits, factors, factor);
    if (wanted.of_weight) add_product(result.of_weight, logits.t(), states, factor);
  }
  mean(losses, target, result);
  return result;
}

int64_t plain_bytes(int64_t rows, int64_t classes, at::ScalarType type) {
  const int64_t copy = type == at::kFloat ? 0 : bytes_of(at::kFloat);
  return rows * classes * (2 * bytes_of(type) + copy);
}

}  // namespace trainopt::kernels
