// Follows every tensor's memory from allocation to release, so that it is known what was live at a step's peak.
#pragma once

#include "device/tensor_memory.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trainopt {

inline constexpr std::array kMemoryUses = {MemoryUse::parameters,  MemoryUse::gradients, MemoryUse::optimizer,
                                           MemoryUse::activations, MemoryUse::batches,   MemoryUse::other};
/// "parameters", "gradients" …
std::string_view name_of(MemoryUse use);

/// Bytes of live tensors by what they are for.
struct MemoryBreakdown {
  std::array<int64_t, kMemoryUses.size()> bytes{};  ///< indexed by MemoryUse
  std::vector<std::pair<std::string, int64_t>>
      activations;  ///< each unit's bytes, in the model's order; "loss" is what the task adds

  int64_t& operator[](MemoryUse use) { return bytes[static_cast<size_t>(use)]; }
  int64_t operator[](MemoryUse use) const { return bytes[static_cast<size_t>(use)]; }
  int64_t total() const;
};

/// The moment of a step at which the most memory was live.
struct MemoryPeak {
  int64_t step = 0;   ///< 0: no step was observed
  std::string where;  ///< "forward of layer1.0", "update"
  MemoryBreakdown breakdown;
};

/// An allocation or a release, for a history.
struct MemoryEvent {
  const void* address;
  int64_t bytes;  ///< negative: a release
  int64_t time_us;
  size_t label;  ///< index into MemoryRecorder::labels(); of a release, that of the block's allocation
};

class MemoryRecorder : public MemoryListener {
 public:
  /// Starts to listen. What is live already counts as `other`. `history`: the number of latest events to keep.
  explicit MemoryRecorder(c10::Device device, size_t history = 0);

  /// The name as labels hold it; lives as long as the recorder.
  const std::string* unit(const std::string& name);
  /// The unit whose backward runs from now on; null: none.
  void set_backward_unit(const std::string* unit);

  /// Begins a step; its peak includes what is live now.
  void begin_step(int64_t step);
  /// Files the memory of these tensors under `use`, in the running step's peak too.
  void relabel(const std::vector<at::Tensor>& tensors, MemoryUse use);
  /// The running step's peak so far.
  MemoryPeak peak() const;
  /// That peak's bytes under each label.
  std::vector<std::pair<MemoryLabel, int64_t>> peak_by_label() const;
  /// What is live now.
  MemoryBreakdown live() const;

  /// Live memory, allocated since the recorder began.
  struct Block {
    int64_t bytes;
    size_t label;       ///< index into labels
    int64_t step;       ///< the last step that had begun when it was allocated
    uint64_t sequence;  ///< orders allocations and peaks
  };
  /// A copy of what is live, for analysis.
  struct Contents {
    std::vector<MemoryLabel> labels;
    std::unordered_map<const void*, Block> blocks;
    int64_t first_step = 0, last_step = 0;
    int64_t live_bytes = 0;  ///< includes what was live before the recorder began
  };
  Contents contents() const;
  /// The latest events, oldest first.
  std::vector<MemoryEvent> history() const;

  /// Stops listening. What was recorded can still be read.
  void stop();
  bool listens() const { return listens_; }

 private:
  void allocated(const void* address, int64_t bytes, const MemoryLabel& label) override;
  void released(const void* address, int64_t bytes) override;
  size_t index_of(MemoryLabel label);
  void forget(const void* address);
  void remember(const MemoryEvent& event);
  MemoryBreakdown breakdown_of(const std::vector<int64_t>& totals) const;

  mutable std::mutex mutex_;  ///< guards everything below: events come from all threads
  std::map<std::string, std::string> units_;
  const std::string* backward_unit_ = nullptr;
  std::vector<MemoryLabel> labels_;
  std::vector<int64_t> totals_;  ///< live bytes by label
  std::unordered_map<const void*, Block> blocks_;
  int64_t live_ = 0, first_step_ = 0, step_ = 0;
  uint64_t sequence_ = 0;

  int64_t peak_ = 0;  ///< the running step's peak
  uint64_t peak_sequence_ = 0;
  size_t peak_label_ = 0;
  std::vector<int64_t> peak_totals_;

  size_t history_size_;
  std::deque<MemoryEvent> history_;
  std::atomic<bool> listens_ = true;
  std::optional<ListenToMemory> listening_;  ///< last, so that it ends first
};

/// "forward of layer1.0"; "loading" and the like without a unit.
std::string where_text(const MemoryLabel& label);

}  // namespace trainopt
