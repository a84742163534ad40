#include "device/product.h"

#include <ATen/Context.h>
#include <ATen/ops/mm.h>
#include <ATen/record_function.h>

// libtorch 2.11.0 exports this function without its header.
namespace at::native {
TORCH_API void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);
}  // namespace at::native

namespace trainopt {

void product_out(at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  static const bool slow_mkl = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") &&
                               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                               __builtin_cpu_supports("avx512dq");
  if (!slow_mkl || !a.is_cpu() || a.scalar_type() != at::kFloat || !at::globalContext().userEnabledMkldnn()) {
    at::mm_out(result, a, b);
    return;
  }
  RECORD_FUNCTION("aten::mm", std::vector<c10::IValue>({a, b}));  // as profilers and receipts know it
  at::native::mkldnn_matmul(a, b, result, /*beta=*/0, /*alpha=*/1);
}

}  // namespace trainopt
