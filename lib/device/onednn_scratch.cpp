#include "device/onednn_scratch.h"

#include "device/tensor.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace trainopt {
namespace {

thread_local bool stands_for_cpu = false;

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

at::Tensor of_one_image(const at::Tensor& like) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[0] = 1;
  return at::zeros(sizes, at::TensorOptions(like.scalar_type()).memory_format(like.suggest_memory_format()));
}

int64_t measured(const ConvolutionGradients& c) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::NoGradGuard no_gradients;
  const at::Tensor gradient = of_one_image(c.gradient), input = of_one_image(c.input),
                   weight = at::zeros(
                       c.weight.sizes(),
                       at::TensorOptions(c.weight.scalar_type()).memory_format(c.weight.suggest_memory_format()));
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

}  // namespace

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
  return known[key] = measured(c);
}

MetaStandsForCpu::MetaStandsForCpu(bool stands) : before_(stands_for_cpu) { stands_for_cpu = stands; }
MetaStandsForCpu::~MetaStandsForCpu() { stands_for_cpu = before_; }
bool MetaStandsForCpu::now() { return stands_for_cpu; }

}  // namespace trainopt
