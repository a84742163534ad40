#include "train/observe/memory_recorder.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace trainopt {
namespace {

constexpr size_t kBefore = 0;  ///< index of the label of what was live before the recorder began

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
}

bool is_backward(const MemoryLabel& label) { return std::strcmp(label.phase, "backward") == 0; }
bool is_forward(const MemoryLabel& label) { return std::strcmp(label.phase, "forward") == 0; }

}  // namespace

std::string_view name_of(MemoryUse use) {
  switch (use) {
    case MemoryUse::parameters:
      return "parameters";
    case MemoryUse::gradients:
      return "gradients";
    case MemoryUse::optimizer:
      return "optimizer";
    case MemoryUse::activations:
      return "activations";
    case MemoryUse::batches:
      return "batches";
    case MemoryUse::other:
      break;
  }
  return "other";
}

std::string where_text(const MemoryLabel& label) {
  const std::string phase = *label.phase ? label.phase : "outside the step";
  return label.unit ? fmt::format("{} of {}", phase, *label.unit) : phase;
}

int64_t MemoryBreakdown::total() const { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

MemoryRecorder::MemoryRecorder(c10::Device device, size_t history) : labels_{MemoryLabel{}}, history_size_(history) {
  if (const auto stats = memory_stats(device)) live_ = stats->allocated;
  totals_ = {live_};
  peak_totals_ = totals_;
  peak_ = live_;
  listening_.emplace(device, *this);
}

void MemoryRecorder::stop() {
  listening_->stop();
  listens_ = false;
}

const std::string* MemoryRecorder::unit(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return &units_.try_emplace(name, name).first->second;
}

void MemoryRecorder::set_backward_unit(const std::string* unit) {
  const std::lock_guard lock(mutex_);
  backward_unit_ = unit;
}

size_t MemoryRecorder::index_of(MemoryLabel label) {
  if (is_backward(label))
    label.unit = backward_unit_;
  else if (is_forward(label))
    backward_unit_ = nullptr;  // it belonged to the micro-batch before
  const auto known = std::find(labels_.begin(), labels_.end(), label);
  if (known != labels_.end()) return static_cast<size_t>(known - labels_.begin());
  labels_.push_back(label);
  totals_.push_back(0);
  peak_totals_.push_back(0);
  return labels_.size() - 1;
}

void MemoryRecorder::remember(const MemoryEvent& event) {
  if (history_size_ == 0) return;
  if (history_.size() == history_size_) history_.pop_front();
  history_.push_back(event);
}

void MemoryRecorder::allocated(const void* address, int64_t bytes, const MemoryLabel& label) {
  const std::lock_guard lock(mutex_);
  const size_t index = index_of(label);
  forget(address);  // a GPU's releases on other threads are not heard
  blocks_[address] = {.bytes = bytes, .label = index, .step = step_, .sequence = ++sequence_};
  totals_[index] += bytes;
  live_ += bytes;
  remember({address, bytes, now_us(), index});
  if (live_ <= peak_) return;
  peak_ = live_;
  peak_sequence_ = sequence_;
  peak_label_ = index;
  peak_totals_ = totals_;
}

void MemoryRecorder::forget(const void* address) {
  const auto block = blocks_.find(address);
  if (block == blocks_.end()) return;
  totals_[block->second.label] -= block->second.bytes;
  live_ -= block->second.bytes;
  blocks_.erase(block);
}

void MemoryRecorder::released(const void* address, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(address);
  const size_t label = block == blocks_.end() ? kBefore : block->second.label;
  totals_[label] -= bytes;
  live_ -= bytes;
  remember({address, -bytes, now_us(), label});
  if (block != blocks_.end()) blocks_.erase(block);
}

void MemoryRecorder::begin_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  if (first_step_ == 0) first_step_ = step;
  step_ = step;
  backward_unit_ = nullptr;
  peak_ = live_;
  peak_sequence_ = sequence_;
  peak_label_ = kBefore;
  peak_totals_ = totals_;
}

void MemoryRecorder::relabel(const std::vector<at::Tensor>& tensors, MemoryUse use) {
  const std::lock_guard lock(mutex_);
  const size_t index = index_of({.use = use});
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const auto block = blocks_.find(tensor.storage().data());
    if (block == blocks_.end()) continue;
    const int64_t bytes = block->second.bytes;
    const size_t before = std::exchange(block->second.label, index);
    totals_[before] -= bytes;
    totals_[index] += bytes;
    if (block->second.sequence > peak_sequence_) continue;  // not yet allocated at the peak
    peak_totals_[before] -= bytes;
    peak_totals_[index] += bytes;
  }
}

MemoryBreakdown MemoryRecorder::breakdown_of(const std::vector<int64_t>& totals) const {
  MemoryBreakdown breakdown;
  for (size_t i = 0; i < totals.size(); ++i) {
    const MemoryLabel& label = labels_[i];
    breakdown[label.use] += totals[i];
    if (label.use == MemoryUse::activations)
      breakdown.activations.emplace_back(label.unit ? *label.unit : "loss", totals[i]);
  }
  return breakdown;
}

MemoryPeak MemoryRecorder::peak() const {
  const std::lock_guard lock(mutex_);
  return {.step = step_, .where = where_text(labels_[peak_label_]), .breakdown = breakdown_of(peak_totals_)};
}

std::vector<std::pair<MemoryLabel, int64_t>> MemoryRecorder::peak_by_label() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<MemoryLabel, int64_t>> bytes;
  for (size_t i = 0; i < labels_.size(); ++i) bytes.emplace_back(labels_[i], peak_totals_[i]);
  return bytes;
}

MemoryBreakdown MemoryRecorder::live() const {
  const std::lock_guard lock(mutex_);
  return breakdown_of(totals_);
}

MemoryRecorder::Contents MemoryRecorder::contents() const {
  const std::lock_guard lock(mutex_);
  return {labels_, blocks_, first_step_, step_, live_};
}

std::vector<MemoryEvent> MemoryRecorder::history() const {
  const std::lock_guard lock(mutex_);
  return {history_.begin(), history_.end()};
}

}  // namespace trainopt
