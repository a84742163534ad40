#include "device/backend_settings.h"

#include "device/tensor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

namespace trainopt {

BackendSettings current_backend_settings() {
  const auto& context = at::globalContext();
  return {.cudnn_benchmark = context.benchmarkCuDNN(),
          .allow_tf32 = context.allowTF32CuDNN() && context.allowTF32CuBLAS(),
          .deterministic = context.deterministicAlgorithms()};
}

double float32_product_error(c10::Device device) {
  const auto random = at::detail::createCPUGenerator(0);  // leaves the trainings' generators alone
  const at::Tensor a = at::randn({256, 256}, random, at::kFloat), b = at::randn({256, 256}, random, at::kFloat);
  const at::Tensor product = at::mm(a.to(device), b.to(device)).to(at::kCPU, at::kDouble);
  const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  return (product - exact).abs().max().item<double>() / exact.abs().max().item<double>();
}

bool can_share_process(const BackendSettings& a, const BackendSettings& b) {
  return a.cudnn_benchmark == b.cudnn_benchmark;
}

BackendGuard::Flags BackendGuard::read() {
  const auto& context = at::globalContext();
  return {.cudnn_benchmark = context.benchmarkCuDNN(),
          .cudnn_tf32 = context.allowTF32CuDNN(),
          .cublas_tf32 = context.allowTF32CuBLAS(),
          .cudnn_deterministic = context.deterministicCuDNN(),
          .mkldnn_deterministic = context.deterministicMkldnn(),
          .deterministic = context.deterministicAlgorithms(),
          .warn_only = context.deterministicAlgorithmsWarnOnly()};
}

void BackendGuard::change(const Flags& from, const Flags& to) {
  auto& context = at::globalContext();
  if (from.cudnn_benchmark != to.cudnn_benchmark) context.setBenchmarkCuDNN(to.cudnn_benchmark);
  if (from.cudnn_tf32 != to.cudnn_tf32) context.setAllowTF32CuDNN(to.cudnn_tf32);
  if (from.cublas_tf32 != to.cublas_tf32) context.setAllowTF32CuBLAS(to.cublas_tf32);
  if (from.cudnn_deterministic != to.cudnn_deterministic) context.setDeterministicCuDNN(to.cudnn_deterministic);
  if (from.mkldnn_deterministic != to.mkldnn_deterministic) context.setDeterministicMkldnn(to.mkldnn_deterministic);
  if (from.deterministic != to.deterministic || from.warn_only != to.warn_only)
    context.setDeterministicAlgorithms(to.deterministic, to.warn_only);
}

BackendGuard::BackendGuard(const BackendSettings& settings)
    : before_(read()),
      during_{.cudnn_benchmark = settings.cudnn_benchmark,
              .cudnn_tf32 = settings.allow_tf32,
              .cublas_tf32 = settings.allow_tf32,
              .cudnn_deterministic = settings.deterministic,
              .mkldnn_deterministic = settings.deterministic,
              .deterministic = settings.deterministic,
              .warn_only = false} {
  change(before_, during_);
}

BackendGuard::~BackendGuard() { change(during_, before_); }

}  // namespace trainopt
