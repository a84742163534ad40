#include "device/meta_device.h"

#include "device/autocast.h"
#include "device/tensor.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_ops.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

namespace trainopt {
namespace {

/// Hands out addresses that exist in no process: reading or writing there ends the program.
class MetaAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kMeta)};
    constexpr size_t kAlignment = 64;
    const uintptr_t address = next_.fetch_add((bytes + kAlignment - 1) / kAlignment * kAlignment);
    auto* block = new MetaBlock{reinterpret_cast<void*>(address), static_cast<int64_t>(bytes)};
    report(*block, block->bytes);
    return {block->address, block, &MetaAllocator::release, c10::Device(c10::kMeta)};
  }
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  struct MetaBlock {
    void* address;
    int64_t bytes;
  };

  static void release(void* context) {
    const auto* block = static_cast<MetaBlock*>(context);
    report(*block, -block->bytes);
    delete block;
  }
  /// Through libtorch's profiler, as the allocators of GPUs do.
  static void report(const MetaBlock& block, int64_t bytes) {
    c10::reportMemoryUsageToProfiler(block.address, bytes, 0, 0, c10::Device(c10::kMeta));
  }

  std::atomic<uintptr_t> next_ = uintptr_t{1} << 62;
};

using OptionalTensor = std::optional<at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor per_channel(const at::Tensor& input, at::ScalarType type) {
  return at::empty({input.size(1)}, input.options().dtype(type));
}

at::Tensor like_if(bool wanted, const at::Tensor& tensor) { return wanted ? at::empty_like(tensor) : at::Tensor(); }

bool is_nhwc(const at::Tensor& tensor) { return tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast; }

/// Two spatial dimensions. The result is NHWC if an operand is, as oneDNN's and cuDNN's.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor&, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool /*transposed*/,
                       at::IntArrayRef /*output_padding*/, int64_t /*groups*/) {
  const auto extent = [&](int64_t axis) {
    const auto i = static_cast<size_t>(axis);
    return (input.size(axis + 2) + 2 * padding[i] - dilation[i] * (weight.size(axis + 2) - 1) - 1) / stride[i] + 1;
  };
  const auto format = is_nhwc(input) || is_nhwc(weight) ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return at::empty({input.size(0), weight.size(0), extent(0), extent(1)}, input.options().memory_format(format));
}

// The memory that oneDNN takes on a CPU while it computes the gradients of convolutions of groups in NHWC: it pads each
// group to blocks of channels, up to 256 times the weight's size. How much depends on the CPU and on oneDNN's version,
// so it is measured, on one image.

std::atomic<bool> stands_for_cpu{false};

/// The most bytes that this thread's allocations on the CPU have had at once, hidden from other listeners.
class PeakOfThread : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  int64_t live_ = 0, peak_ = 0;
};

at::Tensor zeros_like(const at::Tensor& like, at::IntArrayRef sizes) {
  const auto options = at::TensorOptions(like.scalar_type()).memory_format(like.suggest_memory_format());
  return at::empty(sizes, options).zero_();
}

at::Tensor of_one_image(const at::Tensor& like) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[0] = 1;
  return zeros_like(like, sizes);
}

/// A convolution's backward pass. The tensors are on the meta device.
struct ConvolutionGradients {
  const at::Tensor &gradient, &input, &weight;
  at::IntArrayRef stride, padding, dilation;
  int64_t groups;
  std::array<bool, 3> wanted;  ///< the gradients of input, weight and bias
};

int64_t measured_scratch(const ConvolutionGradients& c) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::NoGradGuard no_gradients;
  const at::Tensor gradient = of_one_image(c.gradient), input = of_one_image(c.input),
                   weight = zeros_like(c.weight, c.weight.sizes());
  const auto peak = std::make_shared<PeakOfThread>();
  int64_t results = 0;
  {
    const c10::DebugInfoGuard listening(c10::DebugInfoKind::PROFILER_STATE, peak);
    const std::vector<int64_t> bias{weight.size(0)};
    const auto [of_input, of_weight, of_bias] =
        at::convolution_backward(gradient, input, weight, at::OptionalIntArrayRef(bias), c.stride, c.padding,
                                 c.dilation, /*transposed=*/false, {0, 0}, c.groups, c.wanted);
    for (const at::Tensor& result : {of_input, of_weight, of_bias})
      if (result.defined()) results += static_cast<int64_t>(result.nbytes());
  }
  return std::max<int64_t>(peak->peak() - results, 0);
}

/// Bytes beside those of the results, for as long as it takes. Each kind of convolution is computed once.
int64_t onednn_scratch_bytes(const ConvolutionGradients& c) {
  static std::mutex mutex;
  static std::map<std::vector<int64_t>, int64_t> known;
  std::vector<int64_t> key{static_cast<int64_t>(c.input.scalar_type()), c.groups};
  for (const at::IntArrayRef part : {c.input.sizes().slice(1), c.weight.sizes(), c.stride, c.padding, c.dilation})
    key.insert(key.end(), part.begin(), part.end());
  for (const bool wanted : c.wanted) key.push_back(wanted);
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known[key] = measured_scratch(c);
}

/// Libraries compute the gradient of a weight in a layout of their own (oneDNN) or with work space (cuDNN): one more
/// copy of it for as long as that takes.
ThreeTensors convolution_backward(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                                  at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool,
                                  at::IntArrayRef, int64_t groups, std::array<bool, 3> wanted) {
  const bool is_measured = groups > 1 && stands_for_cpu.load() && (is_nhwc(input) || is_nhwc(weight));
  const at::Tensor in_own_layout =
      is_measured
          ? at::empty({onednn_scratch_bytes({gradient, input, weight, stride, padding, dilation, groups, wanted})},
                      input.options().dtype(at::kByte))
          : like_if(wanted[1], weight);
  return {like_if(wanted[0], input), like_if(wanted[1], weight),
          wanted[2] ? per_channel(gradient, gradient.scalar_type()) : at::Tensor()};
}

/// Statistics are float32 whatever the input's type is.
ThreeTensors batch_norm(const at::Tensor& input, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                        const OptionalTensor&, bool training, double, double) {
  const auto statistics = [&] {
    return training ? per_channel(input, at::kFloat) : at::empty({0}, input.options().dtype(at::kFloat));
  };
  return {at::empty_like(input), statistics(), statistics()};
}

ThreeTensors batch_norm_backward(const at::Tensor&, const at::Tensor& input, const OptionalTensor&,
                                 const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                 const OptionalTensor&, bool, double, std::array<bool, 3> wanted) {
  const auto of_channels = [&](bool is_wanted) { return is_wanted ? per_channel(input, at::kFloat) : at::Tensor(); };
  return {like_if(wanted[0], input), of_channels(wanted[1]), of_channels(wanted[2])};
}

/// Statistics are one float32 value for each row.
ThreeTensors layer_norm(const at::Tensor& input, at::IntArrayRef normalized, const OptionalTensor&,
                        const OptionalTensor&, double) {
  std::vector<int64_t> rows = input.sizes().vec();
  std::fill(rows.end() - static_cast<std::ptrdiff_t>(normalized.size()), rows.end(), 1);
  const auto statistics = [&] { return at::empty(rows, input.options().dtype(at::kFloat)); };
  return {at::empty(input.sizes(), input.options()), statistics(), statistics()};
}

ThreeTensors layer_norm_backward(const at::Tensor&, const at::Tensor& input, at::IntArrayRef, const at::Tensor&,
                                 const at::Tensor&, const OptionalTensor& weight, const OptionalTensor& bias,
                                 std::array<bool, 3> wanted) {
  return {like_if(wanted[0], input), like_if(wanted[1], weight.value_or(at::Tensor())),
          like_if(wanted[2], bias.value_or(at::Tensor()))};
}

/// A tensor of the shape of `heads` (batch × heads × tokens × width), stored token by token as libtorch's attention
/// stores its results.
at::Tensor by_token(const at::Tensor& heads) {
  return at::empty(heads.transpose(1, 2).sizes(), heads.options()).transpose(1, 2);
}

/// The implementations that do not store the scores: they keep the logarithm of each row's sum, in float32.
std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& query, const at::Tensor&, const at::Tensor&, double,
                                             bool, const OptionalTensor&, std::optional<double>) {
  return {by_token(query), at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(at::kFloat))};
}

ThreeTensors attention_backward(const at::Tensor&, const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const at::Tensor&, const at::Tensor&, double, bool,
                                const OptionalTensor&, std::optional<double>) {
  return {by_token(query), by_token(key), by_token(value)};
}

/// Rows of a matrix.
at::Tensor index_select(const at::Tensor& input, int64_t dimension, const at::Tensor& index) {
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[static_cast<size_t>(dimension)] = index.numel();
  return at::empty(sizes, input.options());
}

at::Tensor embedding_backward(const at::Tensor& gradient, const at::Tensor&, int64_t rows, int64_t, bool) {
  return at::empty({rows, gradient.size(-1)}, gradient.options());
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& yes, const at::Tensor& no) {
  return at::empty(at::infer_size(condition.sizes(), at::infer_size(yes.sizes(), no.sizes())), yes.options());
}

at::Tensor& where_out(const at::Tensor&, const at::Tensor&, const at::Tensor&, at::Tensor& out) { return out; }

/// abs, relu and the like.
at::Tensor like(const at::Tensor& input) { return at::empty_like(input); }
at::Tensor& same(at::Tensor& input) { return input; }
at::Tensor like_second(const at::Tensor&, const at::Tensor& input) { return at::empty_like(input); }
at::Tensor truth_like(const at::Tensor& input) { return at::empty_like(input, at::kBool); }
at::Tensor scalar_of(const at::Tensor& input) { return at::empty({}, input.options()); }
at::Tensor dot(const at::Tensor& a, const at::Tensor&) { return scalar_of(a); }

at::Tensor mse_backward(const at::Tensor&, const at::Tensor& input, const at::Tensor&, int64_t) { return like(input); }
at::Tensor smooth_l1_backward(const at::Tensor&, const at::Tensor& input, const at::Tensor&, int64_t, double) {
  return like(input);
}
using OptionalTensor = std::optional<at::Tensor>;
at::Tensor binary_cross_entropy(const at::Tensor& input, const at::Tensor&, const OptionalTensor&, int64_t reduction) {
  return reduction == at::Reduction::None ? like(input) : scalar_of(input);
}
at::Tensor binary_cross_entropy_backward(const at::Tensor&, const at::Tensor& input, const at::Tensor&,
                                         const OptionalTensor&, int64_t) {
  return like(input);
}
at::Tensor huber(const at::Tensor& input, const at::Tensor&, int64_t reduction, double) {
  return reduction == at::Reduction::None ? like(input) : scalar_of(input);
}
std::tuple<at::Tensor, at::Tensor> log_sigmoid(const at::Tensor& input) { return {like(input), like(input)}; }
at::Tensor log_sigmoid_backward(const at::Tensor&, const at::Tensor& input, const at::Tensor&) { return like(input); }

at::Tensor hardtanh(const at::Tensor& input, const at::Scalar&, const at::Scalar&) { return at::empty_like(input); }
at::Tensor& hardtanh_(at::Tensor& input, const at::Scalar&, const at::Scalar&) { return input; }
at::Tensor hardtanh_backward(const at::Tensor&, const at::Tensor& input, const at::Scalar&, const at::Scalar&) {
  return at::empty_like(input);
}
at::Tensor glu_backward(const at::Tensor&, const at::Tensor& input, int64_t) { return at::empty_like(input); }
at::Tensor prelu(const at::Tensor& input, const at::Tensor&) { return at::empty_like(input); }
std::tuple<at::Tensor, at::Tensor> prelu_backward(const at::Tensor&, const at::Tensor& input,
                                                  const at::Tensor& /*weight*/) {
  return {at::empty_like(input), at::empty_like(input)};  // the weight's is summed by its caller
}

at::Tensor roll(const at::Tensor& input, at::IntArrayRef, at::IntArrayRef) {
  return at::empty(input.sizes(), input.options());
}
at::Tensor flip(const at::Tensor& input, at::IntArrayRef) { return at::empty_like(input); }
at::Tensor channel_shuffle(const at::Tensor& input, int64_t) { return at::empty_like(input); }

/// The result of pooling has the input's memory format.
at::Tensor adaptive_average(const at::Tensor& input, at::IntArrayRef sizes) {
  std::vector<int64_t> all = input.sizes().vec();
  std::copy(sizes.begin(), sizes.end(), all.end() - 2);
  return at::empty(all, input.options().memory_format(input.suggest_memory_format()));
}

at::Tensor reflection_pad(const at::Tensor& input, at::IntArrayRef padding) {
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[sizes.size() - 1] += padding[0] + padding[1];
  sizes[sizes.size() - 2] += padding[2] + padding[3];
  return at::empty(sizes, input.options().memory_format(input.suggest_memory_format()));
}
at::Tensor reflection_pad_backward(const at::Tensor&, const at::Tensor& input, at::IntArrayRef) {
  return at::empty_like(input);
}

/// Statistics are one value for each sample and group.
ThreeTensors group_norm(const at::Tensor& input, const OptionalTensor&, const OptionalTensor&, int64_t samples, int64_t,
                        int64_t, int64_t groups, double) {
  const auto statistics = [&] { return at::empty({samples, groups}, input.options()); };
  return {at::empty_like(input), statistics(), statistics()};
}
ThreeTensors group_norm_backward(const at::Tensor&, const at::Tensor& input, const at::Tensor&, const at::Tensor&,
                                 const OptionalTensor& weight, int64_t, int64_t, int64_t, int64_t,
                                 std::array<bool, 3> wanted) {
  const at::Tensor scale = weight.value_or(at::Tensor());
  return {like_if(wanted[0], input), like_if(wanted[1], scale), like_if(wanted[2], scale)};
}

at::Tensor variance(const at::Tensor& input, at::OptionalIntArrayRef dimensions, const std::optional<at::Scalar>&,
                    bool keeps) {
  return input.sum(dimensions, keeps);
}

std::tuple<at::Tensor, at::Tensor> variance_mean(const at::Tensor& input, at::OptionalIntArrayRef dimensions,
                                                 const std::optional<at::Scalar>&, bool keeps) {
  return {input.sum(dimensions, keeps), input.sum(dimensions, keeps)};
}

at::Tensor scaled_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor&, const at::Tensor&,
                          const OptionalTensor&, const OptionalTensor&, std::optional<at::ScalarType> type, bool) {
  return at::empty({a.size(0), b.size(1)}, a.options().dtype(type.value_or(a.scalar_type())));
}

void check_and_unscale(at::TensorList, at::Tensor&, const at::Tensor&) {}

// Autocast. libtorch keeps casts of parameters until autocast ends; here they live as long as backward needs them,
// which is longer.

at::Tensor as_autocast(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat ? tensor.to(type) : tensor;
}

at::Tensor conv2d_as_autocast(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                              at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                              int64_t groups) {
  const at::ScalarType type = autocast_type(at::kMeta).value();
  const c10::impl::ExcludeDispatchKeyGuard once(kMetaAutocastKey);
  return at::conv2d(as_autocast(input, type), as_autocast(weight, type), as_autocast(bias.value_or(at::Tensor()), type),
                    stride, padding, dilation, groups);
}

at::Tensor linear_as_autocast(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias) {
  const at::ScalarType type = autocast_type(at::kMeta).value();
  const c10::impl::ExcludeDispatchKeyGuard once(kMetaAutocastKey);
  return at::linear(as_autocast(input, type), as_autocast(weight, type),
                    as_autocast(bias.value_or(at::Tensor()), type));
}

/// Registers the operations with libtorch's dispatcher, for the rest of the process. Call once.
void register_meta_kernels() {
  // Never deleted: that would withdraw them.
  auto* meta = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  meta->impl("convolution_overrideable", TORCH_FN(convolution));
  meta->impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
  meta->impl("native_batch_norm", TORCH_FN(batch_norm));
  meta->impl("native_batch_norm_backward", TORCH_FN(batch_norm_backward));
  meta->impl("native_layer_norm", TORCH_FN(layer_norm));
  meta->impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
  meta->impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(attention));
  meta->impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(attention_backward));
  meta->impl("index_select", TORCH_FN(index_select));
  meta->impl("embedding_dense_backward", TORCH_FN(embedding_backward));
  meta->impl("where.self", TORCH_FN(where));
  meta->impl("where.self_out", TORCH_FN(where_out));
  for (const char* name : {"abs", "relu", "hardswish"}) meta->impl(name, TORCH_FN(like));
  meta->impl("hardswish_", TORCH_FN(same));
  meta->impl("hardswish_backward", TORCH_FN(like_second));
  meta->impl("hardtanh", TORCH_FN(hardtanh));
  meta->impl("hardtanh_", TORCH_FN(hardtanh_));
  meta->impl("hardtanh_backward", TORCH_FN(hardtanh_backward));
  meta->impl("glu_backward", TORCH_FN(glu_backward));
  meta->impl("_prelu_kernel", TORCH_FN(prelu));
  meta->impl("_prelu_kernel_backward", TORCH_FN(prelu_backward));
  meta->impl("roll", TORCH_FN(roll));
  meta->impl("flip", TORCH_FN(flip));
  meta->impl("channel_shuffle", TORCH_FN(channel_shuffle));
  meta->impl("_adaptive_avg_pool2d", TORCH_FN(adaptive_average));
  meta->impl("_adaptive_avg_pool2d_backward", TORCH_FN(like_second));
  meta->impl("reflection_pad2d", TORCH_FN(reflection_pad));
  meta->impl("reflection_pad2d_backward", TORCH_FN(reflection_pad_backward));
  meta->impl("native_group_norm", TORCH_FN(group_norm));
  meta->impl("native_group_norm_backward", TORCH_FN(group_norm_backward));
  for (const char* name : {"logical_not", "isnan"}) meta->impl(name, TORCH_FN(truth_like));
  meta->impl("max", TORCH_FN(scalar_of));
  meta->impl("dot", TORCH_FN(dot));
  meta->impl("mse_loss_backward", TORCH_FN(mse_backward));
  for (const char* name : {"smooth_l1_loss_backward", "huber_loss_backward"})
    meta->impl(name, TORCH_FN(smooth_l1_backward));
  meta->impl("huber_loss", TORCH_FN(huber));
  meta->impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy));
  meta->impl("binary_cross_entropy_backward", TORCH_FN(binary_cross_entropy_backward));
  meta->impl("log_sigmoid_forward", TORCH_FN(log_sigmoid));
  meta->impl("log_sigmoid_backward", TORCH_FN(log_sigmoid_backward));
  for (const char* name : {"var.correction", "std.correction"}) meta->impl(name, TORCH_FN(variance));
  meta->impl("var_mean.correction", TORCH_FN(variance_mean));
  meta->impl("_scaled_mm", TORCH_FN(scaled_product));
  meta->impl(at::_ops::_amp_foreach_non_finite_check_and_unscale_::name, TORCH_FN(check_and_unscale));
  auto* others = new torch::Library(torch::Library::IMPL, "_", kMetaAutocastKey, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  auto* autocast = new torch::Library(torch::Library::IMPL, "aten", kMetaAutocastKey, __FILE__, __LINE__);
  autocast->impl("conv2d", TORCH_FN(conv2d_as_autocast));
  autocast->impl("linear", TORCH_FN(linear_as_autocast));
}

}  // namespace

void open_meta_device() {
  static const bool opened = [] {
    c10::SetAllocator(c10::kMeta, new MetaAllocator);  // never deleted: tensors may outlive everything else
    register_meta_kernels();
    return true;
  }();
  static_cast<void>(opened);
}

MetaStandsForCpu::MetaStandsForCpu(bool stands) : before_(stands_for_cpu.exchange(stands)) {}
MetaStandsForCpu::~MetaStandsForCpu() { stands_for_cpu = before_; }

}  // namespace trainopt
