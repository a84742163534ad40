// Each operation that is registered for the meta device beside the CPU's: shapes, types and layouts, forward and
// backward.
#include "device/meta_device.h"
#include "device/tensor.h"
#include "support/catch.h"

#include <ATen/Functions.h>

using namespace trainopt;

namespace {

struct Case {
  const char* name;
  at::IntArrayRef sizes;
  std::function<at::Tensor(const at::Tensor&)> run;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
};

constexpr int64_t kImages[] = {2, 8, 6, 5}, kRows[] = {4, 6};
constexpr at::MemoryFormat kNhwc = at::MemoryFormat::ChannelsLast;

std::vector<Case> cases() {
  const auto weight = [](const at::Tensor& x) { return at::ones({8}, x.options()).requires_grad_(true); };
  return {
      {"hardswish", kImages, [](const at::Tensor& x) { return at::hardswish(x); }},
      {"hardswish, NHWC", kImages, [](const at::Tensor& x) { return at::hardswish(x); }, kNhwc},
      {"hardswish_", kImages,
       [](const at::Tensor& x) {
         at::Tensor twice = x * 2;
         return at::hardswish_(twice);
       }},
      {"mean squares", kRows, [](const at::Tensor& x) { return at::mse_loss(x, x.detach() * 2); }},
      {"smooth L1", kRows, [](const at::Tensor& x) { return at::smooth_l1_loss(x, x.detach() * 2); }},
      {"Huber", kRows, [](const at::Tensor& x) { return at::huber_loss(x, x.detach() * 2); }},
      {"binary cross entropy", kRows,
       [](const at::Tensor& x) { return at::binary_cross_entropy(x.sigmoid(), x.detach().sigmoid()); }},
      {"log sigmoid", kRows, [](const at::Tensor& x) { return at::log_sigmoid(x); }},
      {"hardtanh", kImages, [](const at::Tensor& x) { return at::hardtanh(x); }},
      {"relu6", kImages, [](const at::Tensor& x) { return at::relu6(x); }},
      {"glu", kImages, [](const at::Tensor& x) { return at::glu(x, 1); }},
      {"prelu", kImages, [=](const at::Tensor& x) { return at::prelu(x, weight(x)); }},
      {"roll", kImages,
       [](const at::Tensor& x) {
         return at::roll(x, {1, 2}, {2, 3});
       }},
      {"roll of a permuted tensor", kImages,
       [](const at::Tensor& x) {
         return at::roll(x.permute({0, 2, 3, 1}), {1}, {2});
       }},
      {"flip", kImages, [](const at::Tensor& x) { return at::flip(x, {3}); }},
      {"adaptive average", kImages,
       [](const at::Tensor& x) {
         return at::adaptive_avg_pool2d(x, {3, 2});
       }},
      {"adaptive average, NHWC", kImages,
       [](const at::Tensor& x) {
         return at::adaptive_avg_pool2d(x, {3, 2});
       },
       kNhwc},
      {"reflection", kImages,
       [](const at::Tensor& x) {
         return at::reflection_pad2d(x, {1, 2, 0, 3});
       }},
      {"group norm", kImages, [=](const at::Tensor& x) { return at::group_norm(x, 4, weight(x), weight(x)); }},
      {"var", kRows, [](const at::Tensor& x) { return at::var(x, at::OptionalIntArrayRef({1}), 1, true); }},
      {"std", kRows, [](const at::Tensor& x) { return at::std(x, at::OptionalIntArrayRef({0}), 1, false); }},
      {"isnan", kRows, [](const at::Tensor& x) { return at::isnan(x); }},
      {"max", kRows, [](const at::Tensor& x) { return at::max(x.detach()); }},
      {"dot", kRows, [](const at::Tensor& x) { return at::dot(x.flatten(), x.flatten()); }},
      {"where", kRows, [](const at::Tensor& x) { return at::where(x > 0, x, x * 2); }},
      {"index_select", kRows,
       [](const at::Tensor& x) { return at::index_select(x, 0, at::zeros({3}, x.options().dtype(at::kLong))); }},
  };
}

/// Sizes, strides and type of the result and of the input's gradient.
std::string form_of(const Case& each, at::Device device) {
  const at::Tensor x = at::ones(each.sizes, at::TensorOptions(device)).contiguous(each.format).requires_grad_(true);
  const at::Tensor y = each.run(x);
  std::string form =
      fmt::format("{} {} {}", c10::str(y.sizes()), c10::str(y.strides()), c10::toString(y.scalar_type()));
  if (y.requires_grad()) {
    y.sum().backward();
    form += fmt::format("; {} {}", c10::str(x.grad().sizes()), c10::str(x.grad().strides()));
  }
  return form;
}

}  // namespace

TEST_CASE("operations on the meta device have the shapes, types and layouts of the CPU's") {
  open_meta_device();
  for (const Case& each : cases()) {
    INFO(each.name);
    CHECK(form_of(each, at::kMeta) == form_of(each, at::kCPU));
  }
}
