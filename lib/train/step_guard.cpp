#include "train/step_guard.h"

#include "device/tensor.h"
#include "metrics/async_reader.h"
#include "model/model.h"
#include "train/optimizer/gradients.h"

#include <algorithm>

namespace trainopt {
namespace {

constexpr size_t kMaxStarts = AsyncReader::kMaxInFlight + 2;  // the host is never more steps behind

at::Tensor not_finite(const at::Tensor& scalar) { return at::isfinite(scalar).logical_not().to(at::kFloat); }

}  // namespace

StepGuard::StepGuard(const Model& model, c10::Device device, at::Generator generator, bool detects_nonfinite)
    : generator_(std::move(generator)) {
  const at::NoGradGuard no_grad;
  for (const auto type : {at::kFloat, at::kLong}) {
    NamedTensors chosen;
    int64_t count = 0;
    for (const auto& [name, buffer] : model.buffers())
      if (buffer.scalar_type() == type) {
        chosen.emplace_back(name, buffer);
        count += buffer.numel();
      }
    if (chosen.empty()) continue;
    const at::Tensor all = at::empty({count}, at::TensorOptions(type).device(device));
    int64_t at = 0;
    for (auto& [name, buffer] : chosen) {
      const at::Tensor target = all.narrow(0, at, buffer.numel()).view(buffer.sizes());
      target.copy_(buffer);
      buffer.set_(target);  // every holder keeps the same tensor, now in the shared memory
      at += buffer.numel();
    }
    buffers_.push_back({all, all.clone()});
  }
  if (!detects_nonfinite) return;
  const auto scalar = at::TensorOptions(device).dtype(at::kFloat);
  flag_ = at::zeros({}, scalar);
  bad_loss_ = at::zeros({}, scalar);
}

void StepGuard::begin(int64_t step, int64_t samples) {
  for (auto& saved : buffers_) saved.before.copy_(saved.now);
  starts_.push_back({step, samples, generator_.get_state(), {}});
  if (starts_.size() > kMaxStarts) starts_.pop_front();
  if (flag_.defined()) bad_loss_.zero_();
}

void StepGuard::add_samples(const std::vector<int64_t>& ids) {
  auto& known = starts_.back().sample_ids;
  known.insert(known.end(), ids.begin(), ids.end());
}

void StepGuard::watch(const at::Tensor& loss) {
  if (flag_.defined()) bad_loss_.copy_(at::maximum(bad_loss_, not_finite(loss)));
}

at::Tensor StepGuard::decide(const at::Tensor& overflow, Gradients& gradients) {
  if (!flag_.defined()) return overflow;
  const at::NoGradGuard no_grad;
  if (!overflow.defined()) gradients.check_finite(bad_loss_);
  gradients.agree(bad_loss_);
  flag_.copy_(at::maximum(flag_, bad_loss_));
  return overflow.defined() ? at::maximum(overflow, flag_) : flag_;
}

void StepGuard::restore_bad_buffers() {
  if (!flag_.defined()) return;
  for (auto& saved : buffers_) saved.now.copy_(at::where(flag_ > 0, saved.before, saved.now));
}

const StepStart* StepGuard::start_of(int64_t step) const {
  const auto found =
      std::find_if(starts_.begin(), starts_.end(), [&](const StepStart& start) { return start.step == step; });
  return found == starts_.end() ? nullptr : &*found;
}

void StepGuard::rollback() {
  for (auto& saved : buffers_) saved.now.copy_(saved.before);
  generator_.set_state(starts_.back().random_state);
  starts_.pop_back();
}

void StepGuard::rewind_to(int64_t step) {
  if (const StepStart* start = start_of(step)) generator_.set_state(start->random_state);
  std::erase_if(starts_, [&](const StepStart& start) { return start.step >= step; });
  if (flag_.defined()) flag_.zero_();
}

}  // namespace trainopt
