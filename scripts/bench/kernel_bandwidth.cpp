// Measures the bandwidth of each pass of the kernels norm, pool, head, layer_norm, gelu, update and image_finish,
// relative to a plain copy. Prints one JSON object per line: pass, type, MiB that it must move, its bandwidth ÷ the
// copy's. Pass and copy take turns; the ratio is the median over the turns. Names in `[…]` are the same work by
// libtorch.
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "device/cuda_library.h"
#include "device/device.h"
#include "device/device_allocator.h"
#include "device/tensor.h"
#include "kernels/gelu/gelu.h"
#include "kernels/head/head.h"
#include "kernels/image_finish/image_finish.h"
#include "kernels/image_finish/placement_rows.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/pool/pool.h"
#include "kernels/update/update.h"
#include "metrics/summary.h"
#include "run/version.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>

using namespace trainopt;
using namespace trainopt::kernels;

namespace {

struct Pass {
  std::string name;
  double tensors;  ///< how many tensors of x's size it must read or write
  std::function<void()> run;
};

double seconds_of(const std::function<void()>& work, at::Device device) {
  const auto began = Clock::now();
  work();
  synchronize(device);
  return seconds_since(began);
}

/// Measures each pass, in turn with a plain copy of `x`.
void report(const std::vector<Pass>& passes, const at::Tensor& x, int turns) {
  const at::Device device = x.device();
  at::Tensor copied = at::empty_like(x);
  const auto copy = [&] {
    if (!device.is_cpu()) return void(copied.copy_(x));
    const int64_t threads = at::get_num_threads();  // inside parallel_for the number differs
    at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      const auto bytes = static_cast<int64_t>(x.nbytes());
      const int64_t first = bytes * begin / threads, last = bytes * end / threads;
      std::memcpy(static_cast<char*>(copied.mutable_data_ptr()) + first,
                  static_cast<const char*>(x.const_data_ptr()) + first, static_cast<size_t>(last - first));
    });
  };
  for (const Pass& pass : passes) {
    std::vector<double> ratios, copies;
    seconds_of(pass.run, device);
    seconds_of(copy, device);
    for (int turn = 0; turn < turns; ++turn) {
      const double before = seconds_of(copy, device), ours = seconds_of(pass.run, device),
                   after = seconds_of(copy, device);
      const double of_copy = 2 / ((before + after) / 2);
      ratios.push_back(pass.tensors / ours / of_copy);
      copies.push_back(of_copy * static_cast<double>(x.nbytes()));
    }
    std::cout << Json{{"pass", pass.name},
                      {"device", device.str()},
                      {"type", c10::toString(x.scalar_type())},
                      {"mib", pass.tensors * static_cast<double>(x.nbytes()) / 0x1p20},
                      {"of_copy", percentile(ratios, 0.5)},
                      {"copy_gb_per_s", percentile(copies, 0.5) / 1e9}}
                     .dump()
              << std::endl;
  }
}

/// Measures updates of one tensor of x's size, which stays unchanged because the learning rate is 0.
void report_updates(const update::UpdateKernels& kernels, const at::Tensor& x, int turns) {
  const at::Tensor parameter = at::randn_like(x), gradient = at::randn_like(x), first = at::zeros_like(x),
                   second = at::zeros_like(x);
  const auto scalar = [&](double value, at::ScalarType type) {
    return at::full({}, value, x.options().dtype(type).memory_format(at::MemoryFormat::Contiguous));
  };
  const at::Tensor updates = scalar(0, at::kDouble), count = scalar(1, at::kFloat);
  const auto settings = [&](bool clears) {
    return update::Settings{.learning_rate = scalar(0, at::kFloat),
                            .factor = scalar(1, at::kFloat),
                            .skip_update = scalar(0, at::kFloat),
                            .clears = clears};
  };
  const auto keep = settings(false), clear = settings(true);
  const update::SgdRule sgd{.momentum = 0.9f, .weight_decay = 0.01f, .nesterov = false};
  const update::AdamRule adamw{
      .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8f, .weight_decay = 0.01f, .decoupled = true};
  const std::vector<at::Tensor> p{parameter}, g{gradient}, m{first}, v{second}, c{at::empty_like(x, at::kBFloat16)};
  report(
      {{"measure", 1, [&] { kernels.measure(g, parameter); }},
       {"sgd, momentum", 5,
        [&] {
          kernels.sgd(sgd, {p, g, m, {}}, keep);
        }},
       {"[sgd, momentum]", 5, [&] { at::_fused_sgd_(p, g, m, 0.01, 0.9, 0.0, 0.0, false, false, false); }},
       {"sgd, momentum, clears", 6,
        [&] {
          kernels.sgd(sgd, {p, g, m, {}}, clear);
        }},
       {"adamw", 7,
        [&] {
          kernels.adam(adamw, updates, {p, g, m, v}, keep);
        }},
       {"[adamw]", 7, [&] { at::_fused_adamw_(p, g, m, v, {}, {count}, 0.0, 0.9, 0.999, 0.01, 1e-8, false, false); }},
       {"adamw, clears", 8,
        [&] {
          kernels.adam(adamw, updates, {p, g, m, v}, clear);
        }},
       {"adamw, clears, bfloat16 copy", 8.5,
        [&] {
          kernels.adam(adamw, updates, {p, g, m, v, c}, clear);
        }}},
      x, turns);
}

/// Measures layer norm over 768 columns with a branch and a result of x's type and a float32 residual, as under
/// autocast, and GELU over 3072 columns. Linear layers of libtorch add the bias themselves, so its GELU has none.
void report_rows(const at::Tensor& x, int turns) {
  const bool on_cpu = x.is_cpu();
  const LayerNormKernels& norms = on_cpu ? cpu_layer_norm_kernels() : *cuda_layer_norm_kernels();
  const GeluKernels& gelus = on_cpu ? cpu_gelu_kernels() : *cuda_gelu_kernels();
  constexpr int64_t kWidth = 768;
  const auto type = x.scalar_type();
  const at::Tensor branch = x.view(-1).slice(0, 0, x.numel() / (4 * kWidth) * 4 * kWidth).view({-1, kWidth}),
                   residual = at::randn(branch.sizes(), x.device()), of_sum = at::randn_like(residual),
                   of_normalized = at::randn_like(branch), weight = at::randn({kWidth}, x.device()),
                   bias = at::randn({kWidth}, x.device());
  const LayerNormParameters norm{weight, bias, 1e-5};
  const LayerNormResult result = norms.forward(residual, branch, norm, type);
  const at::Tensor mean = result.by.mean.unsqueeze(1), rstd = result.by.rstd.unsqueeze(1);
  const double wide = 4 / static_cast<double>(x.element_size()), copy = wide > 1 ? 1 : 0;
  std::vector<Pass> passes{
      {"layer norm", 1 + wide, [&] { norms.forward(residual, {}, norm, type); }},
      {"[layer norm]", 1 + wide, [&] { at::layer_norm(residual, {kWidth}, weight, bias, 1e-5).to(type); }},
      {"add, layer norm", 2 + 2 * wide, [&] { norms.forward(residual, branch, norm, type); }},
      {"[add, layer norm]", 2 + 2 * wide,
       [&] { at::layer_norm(residual + branch, {kWidth}, weight, bias, 1e-5).to(type); }},
      {"add, layer norm, gradients", 1 + 3 * wide + copy,
       [&] {
         norms.backward({of_normalized, of_sum}, result.sum, result.by, weight, at::kFloat, type);
       }},
      {"[add, layer norm, gradients]", 1 + 3 * wide + copy, [&] {
         const auto [of_input, of_weight, of_bias] = at::native_layer_norm_backward(
             of_normalized.to(at::kFloat), result.sum, {kWidth}, mean, rstd, weight, bias, {true, true, true});
         (of_input + of_sum).to(type);
       }}};
  const at::Tensor hidden = branch.view({-1, 4 * kWidth}), gradient = of_normalized.view({-1, 4 * kWidth}),
                   of_hidden = at::randn({4 * kWidth}, x.device());
  for (const auto& [name, form, word] :
       {std::tuple{"gelu", Gelu::exact, "none"}, std::tuple{"gelu, tanh", Gelu::tanh, "tanh"}}) {
    const std::string of = name;
    passes.push_back({of, 2, [&, form = form] { gelus.forward(hidden, of_hidden, form); }});
    passes.push_back({"[" + of + "]", 2, [&, word = word] { at::gelu(hidden, word); }});
    passes.push_back({of + ", gradients", 3, [&, form = form] { gelus.backward(gradient, hidden, of_hidden, form); }});
    passes.push_back(
        {"[" + of + ", gradients]", 3, [&, word = word] { at::gelu_backward(gradient, hidden, word).sum(0); }});
  }
  report(passes, x, turns);
}

/// Measures the conversion of 224 × 224 windows of 232 × 232 images to x's type; half of the images are mirrored.
void report_image_finish(const at::Tensor& x, int64_t count, int turns) {
  constexpr int64_t kSide = 224, kFrom = 232;
  const at::Tensor images = at::randint(256, {count, kFrom, kFrom, 3}, at::TensorOptions(x.device()).dtype(at::kByte));
  at::Tensor placement = at::zeros({kWindowRows, count}, at::kInt);
  placement[kImage] = at::arange(count, at::kInt), placement[kFlip] = placement[kImage] % 2;
  placement[kTop] = placement[kValidTop] = 3, placement[kLeft] = placement[kValidLeft] = 5;
  placement[kValidBottom] = 3 + kSide, placement[kValidRight] = 5 + kSide;
  placement = placement.to(x.device());
  const double values = static_cast<double>(count * kSide * kSide * 3),
               tensors = values * (1 + static_cast<double>(x.element_size())) / static_cast<double>(x.nbytes());
  std::vector<Pass> passes;
  for (const auto& [name, format] : {std::pair{"image finish, NCHW", at::MemoryFormat::Contiguous},
                                     std::pair{"image finish, NHWC", at::MemoryFormat::ChannelsLast}}) {
    const ImageFinish finish({}, {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
                             {{kSide, kSide}, x.scalar_type(), format}, x.device());
    passes.push_back({name, tensors, [=] { finish(images, placement); }});
  }
  report(passes, x, turns);
}

}  // namespace

/// Arguments: turns, images, device (cpu or cuda). An image has 64 channels of 112 × 112, as after a ResNet's first
/// convolution. The input of the average pool has as many values, as 512 channels of 7 × 7; the loss has 1024 rows of
/// 1000 classes per image. On a GPU use enough images to make launch times negligible.
int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 9;
  const int64_t images = argc > 2 ? std::atoll(argv[2]) : 32;
  open_cuda_library(kBuild.cuda_library);
  const at::Device named(argc > 3 ? argv[3] : "cpu");
  if (!named.is_cpu() && cuda_norm_kernels() == nullptr)
    throw UserError("there are no GPU kernels: " +
                    (!built_for_cuda()                ? "this build was configured with TRAINOPT_CUDA=OFF"
                     : cuda_library_problem().empty() ? "NVIDIA's driver is not installed"
                                                      : cuda_library_problem()));
  const at::Device device = with_index(named);
  const at::NoGradGuard no_grad;
  install_caching_allocator(/*huge_pages=*/true);  // keeps malloc's page faults out of the measurement
  const NormKernels& kernels = device.is_cpu() ? cpu_norm_kernels() : *cuda_norm_kernels();
  const PoolKernels& pool_kernels = device.is_cpu() ? cpu_pool_kernels() : *cuda_pool_kernels();
  const HeadKernels& head_kernels = device.is_cpu() ? cpu_head_kernels() : *cuda_head_kernels();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto tensor = [&](int64_t side) {
      return at::randn({images, 64, side, side}, device).to(type).contiguous(at::MemoryFormat::ChannelsLast);
    };
    const at::Tensor x = tensor(112), gradient = tensor(112), y = tensor(112), of_pool = tensor(56);
    const auto by_channel = [&] { return at::randn({64}).to(device); };
    const at::Tensor scale = (at::rand({64}) + 0.5).to(device), shift = by_channel();
    const Statistics by{by_channel(), by_channel(), scale, shift};
    const Coefficients to{by_channel(), by_channel(), by_channel(), by_channel()};
    const at::Tensor running_mean = by_channel(), running_var = at::rand({64}).to(device),
                     batches = at::zeros({}, at::TensorOptions(device).dtype(at::kLong));
    const NormParameters norm{scale, shift, running_mean, running_var, batches, 0.1, 1e-5};
    const Pooled pooled = pool_kernels.pool(x, scale, shift);
    const double positions = 0.25 / static_cast<double>(x.element_size());
    const at::Tensor
        deep = at::randn({images * 32, 512, 7, 7}, device).to(type).contiguous(at::MemoryFormat::ChannelsLast),
        mean = head_kernels.mean(deep);
    const at::Tensor logits = at::randn({images * 1024, 1000}, device).to(type),
                     target = at::randint(1000, {images * 1024}, at::TensorOptions(device).dtype(at::kLong));
    const at::Tensor upstream = at::full({}, static_cast<double>(images * 1024) * stored_gradient_scale(type))
                                    .to(device);  // leaves the gradient unchanged, however often it is applied
    const double of_logits = static_cast<double>(logits.numel()) / static_cast<double>(x.numel());
    CrossEntropy loss = head_kernels.cross_entropy(logits, target, 0.1);
    at::Tensor g;
    const std::vector<Pass> passes = {
        {"statistics", 1, [&] { kernels.statistics(x, norm); }},
        {"apply, relu", 2, [&] { kernels.apply(x, scale, shift, {}, true); }},
        {"apply, add, relu", 3, [&] { kernels.apply(x, scale, shift, y, true); }},
        {"coefficients through relu", 2, [&] { kernels.coefficients_through_relu(gradient, x, by); }},
        {"coefficients through output", 4, [&] { kernels.coefficients_through_output(gradient, y, x, by, g); }},
        {"input gradient through relu", 3, [&] { kernels.input_gradient_through_relu(gradient, x, by, to); }},
        {"input gradient", 3, [&] { kernels.input_gradient(gradient, x, by, to); }},
        {"pool", 1.5 + positions, [&] { pool_kernels.pool(x, scale, shift); }},
        {"coefficients through pool", 0.5 + positions,
         [&] { pool_kernels.coefficients(of_pool, pooled, by, images * 112 * 112); }},
        {"input gradient through pool", 2.25 + positions,
         [&] { pool_kernels.input_gradient(of_pool, pooled.positions, x, by, to); }},
        {"average pool", 1 + 1.0 / 49, [&] { head_kernels.mean(deep); }},
        {"average pool, gradient", 1 + 1.0 / 49, [&] { head_kernels.mean_gradient(mean, 7, 7); }},
        {"cross entropy", 2 * of_logits, [&] { head_kernels.cross_entropy(logits, target, 0); }},
        {"cross entropy, smoothed", 2 * of_logits, [&] { head_kernels.cross_entropy(logits, target, 0.1); }},
        {"cross entropy, gradient finished", 2 * of_logits,
         [&] { head_kernels.finish_gradient(loss.gradient, upstream); }},
    };
    report(passes, x, turns);
    report_rows(at::randn({x.numel()}, device).to(type), turns);
    report_image_finish(x, images * 4, turns);
    if (type == at::kFloat) report_updates(device.is_cpu() ? update::cpu_kernels() : *update::cuda_kernels(), x, turns);
  }
  return 0;
}
