#include "compare/numerics_tensors.h"

#include "device/tensor.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace trainopt {
namespace {

TensorPair products(const std::string& name, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.to(at::kDouble).flatten(), right = b.to(at::kDouble).flatten();
  return {.name = name,
          .numbers = left.numel(),
          .aa = left.dot(left).item<double>(),
          .bb = right.dot(right).item<double>(),
          .ab = left.dot(right).item<double>()};
}

}  // namespace

double TensorPair::cosine() const {
  if (aa == 0 && bb == 0) return 1;
  return aa > 0 && bb > 0 ? ab / (std::sqrt(aa) * std::sqrt(bb)) : 0;
}

double TensorPair::chord() const { return std::sqrt(std::max(0.0, 2 * (1 - cosine()))); }

double TensorPair::norm_ratio() const { return aa == bb ? 1 : std::sqrt(bb / aa); }

double TensorPair::norm_change() const {
  if (aa == bb) return 0;
  return aa > 0 && bb > 0 ? std::abs(std::log(bb / aa)) / 2 : kZeroNormChange;
}

bool TensorPair::is_finite() const { return std::isfinite(aa) && std::isfinite(bb) && std::isfinite(ab); }

std::optional<std::vector<TensorPair>> pair_tensors(const NamedTensors& a, const NamedTensors& b, bool absent_is_zero) {
  std::map<std::string, at::Tensor> of_b(b.begin(), b.end());
  std::vector<TensorPair> pairs;
  for (const auto& [name, tensor] : a) {
    const auto found = of_b.find(name);
    if (found == of_b.end() && !absent_is_zero) return std::nullopt;
    const at::Tensor other = found == of_b.end() ? at::zeros_like(tensor) : found->second;
    if (other.sizes() != tensor.sizes()) return std::nullopt;
    pairs.push_back(products(name, tensor, other));
    of_b.erase(name);
  }
  if (!of_b.empty() && !absent_is_zero) return std::nullopt;
  for (const auto& [name, tensor] : of_b) pairs.push_back(products(name, at::zeros_like(tensor), tensor));
  return pairs;
}

TensorPair combined(const std::vector<TensorPair>& pairs) {
  TensorPair all;
  for (const TensorPair& pair : pairs) {
    all.numbers += pair.numbers;
    all.aa += pair.aa;
    all.bb += pair.bb;
    all.ab += pair.ab;
  }
  return all;
}

}  // namespace trainopt
