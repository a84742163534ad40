#include "device/backend_settings.h"

#include "device/tensor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/Device.h>

#include <algorithm>

namespace trainopt {

BackendSettings current_backend_settings() {
  const auto& context = at::globalContext();
  return {.cudnn_benchmark = context.benchmarkCuDNN(),
          .allow_tf32 = context.allowTF32CuDNN() && context.allowTF32CuBLAS(),
          .deterministic = context.deterministicAlgorithms(),
          .attention = current_attention_kernel()};
}

AttentionKernel current_attention_kernel() {
  const auto& context = at::globalContext();
  const bool flash = context.userEnabledFlashSDP(), efficient = context.userEnabledMemEfficientSDP(),
             cudnn = context.userEnabledCuDNNSDP();
  if (!flash && !efficient && !cudnn) return AttentionKernel::math;
  if (flash && !efficient && !cudnn) return AttentionKernel::flash;
  if (!flash && efficient && !cudnn) return AttentionKernel::efficient;
  if (!flash && !efficient && cudnn) return AttentionKernel::cudnn;
  return AttentionKernel::automatic;
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
          .warn_only = context.deterministicAlgorithmsWarnOnly(),
          .attention = read_attention()};
}

BackendGuard::AttentionFlags BackendGuard::read_attention() {
  auto& context = at::globalContext();
  AttentionFlags flags{.flash = context.userEnabledFlashSDP(),
                       .efficient = context.userEnabledMemEfficientSDP(),
                       .cudnn = context.userEnabledCuDNNSDP(),
                       .math = context.userEnabledMathSDP(),
                       .order = {}};
  const auto order = context.sDPPriorityOrder();
  static_assert(std::tuple_size_v<decltype(order)> == std::tuple_size_v<decltype(flags.order)>);
  for (size_t i = 0; i < order.size(); ++i) flags.order[i] = static_cast<int64_t>(order[i]);
  return flags;
}

/// Math stays on for what the chosen one does not support.
BackendGuard::AttentionFlags BackendGuard::attention_flags(AttentionKernel kernel, AttentionFlags now) {
  const auto only = [&](bool flash, bool efficient, bool cudnn, at::SDPBackend first) {
    std::stable_partition(now.order.begin(), now.order.end(),
                          [&](int64_t one) { return one == static_cast<int64_t>(first); });
    return AttentionFlags{.flash = flash, .efficient = efficient, .cudnn = cudnn, .math = true, .order = now.order};
  };
  switch (kernel) {
    case AttentionKernel::math:
      return only(false, false, false, at::SDPBackend::math);
    case AttentionKernel::flash:
      return only(true, false, false, at::SDPBackend::flash_attention);
    case AttentionKernel::efficient:
      return only(false, true, false, at::SDPBackend::efficient_attention);
    case AttentionKernel::cudnn:
      return only(false, false, true, at::SDPBackend::cudnn_attention);
    case AttentionKernel::automatic:
      break;
  }
  return {.flash = true, .efficient = true, .cudnn = true, .math = true, .order = now.order};
}

void BackendGuard::change_attention(const AttentionFlags& to) {
  auto& context = at::globalContext();
  context.setSDPUseFlash(to.flash);
  context.setSDPUseMemEfficient(to.efficient);
  context.setSDPUseCuDNN(to.cudnn);
  context.setSDPUseMath(to.math);
  context.setSDPPriorityOrder({to.order.begin(), to.order.end()});
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
  if (from.attention != to.attention) change_attention(to.attention);
}

BackendGuard::BackendGuard(const BackendSettings& settings)
    : before_(read()),
      during_{.cudnn_benchmark = settings.cudnn_benchmark,
              .cudnn_tf32 = settings.allow_tf32,
              .cublas_tf32 = settings.allow_tf32,
              .cudnn_deterministic = settings.deterministic,
              .mkldnn_deterministic = settings.deterministic,
              .deterministic = settings.deterministic,
              .warn_only = false,
              .attention = attention_flags(settings.attention, before_.attention)} {
  change(before_, during_);
}

BackendGuard::~BackendGuard() { change(during_, before_); }

}  // namespace trainopt
