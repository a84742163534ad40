// A trace in memory: of each event only what the analysis needs, with interned names. All times are nanoseconds on the
// trace's own clock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trainopt::trace {

// Interned texts: a trace repeats a few thousand names millions of times.

constexpr uint32_t kNone = UINT32_MAX;  ///< no name, event or thread

class Names {
 public:
  /// The number of `text`, the same for equal texts.
  uint32_t add(std::string_view text) {
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    const auto number = static_cast<uint32_t>(texts_.size());
    numbers_.emplace(texts_.emplace_back(text), number);
    return number;
  }
  /// Empty for kNone.
  std::string_view operator[](uint32_t number) const {
    return number == kNone ? std::string_view() : std::string_view(texts_[number]);
  }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;  ///< a deque, so that the views in `numbers_` remain valid
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

enum class HostKind : uint8_t { operation, annotation, runtime };
enum class DeviceKind : uint8_t { kernel, copy, fill };  ///< fill: a memset

/// Something that a CPU thread did.
struct HostEvent {
  int64_t start_ns = 0, end_ns = 0;
  int64_t id = 0;      ///< `External id`: an operation's own, for a runtime call that of its operation; 0: none
  int64_t extra = -1;  ///< an operation's FLOPs; a runtime call's `correlation`; -1: unknown
  uint32_t name = kNone;
  uint32_t shapes = kNone;  ///< `Input Dims` as text
  uint32_t thread = 0;
  HostKind kind = HostKind::operation;

  int64_t duration_ns() const { return end_ns - start_ns; }
};

/// Something that a device did.
struct DeviceEvent {
  int64_t start_ns = 0, end_ns = 0;
  int64_t id = 0;            ///< `External id` of the operation that launched it; 0: none
  int64_t correlation = -1;  ///< id of the runtime call that launched it; -1: none
  int64_t bytes = 0;         ///< bytes copied or filled
  int64_t blocks = -1;       ///< blocks in the grid; -1: unknown
  double occupancy = -1;     ///< `est. achieved occupancy %`; -1: unknown
  uint32_t name = kNone;
  int32_t device = 0;
  DeviceKind kind = DeviceKind::kernel;

  int64_t duration_ns() const { return end_ns - start_ns; }
};

/// What one process recorded.
struct RankTrace {
  int64_t rank = 0;
  bool says_rank = false;                 ///< otherwise `rank` is 0 for want of another number
  std::optional<int64_t> ranks;           ///< number of ranks in the job, if the file says so
  std::shared_ptr<const Names> names;     ///< shared by the ranks of a file
  std::vector<HostEvent> host;            ///< in file order
  std::vector<DeviceEvent> device;        ///< in file order
  std::vector<std::string> device_names;  ///< the names in `deviceProperties`

  std::string_view name(const HostEvent& event) const { return (*names)[event.name]; }
  std::string_view name(const DeviceEvent& event) const { return (*names)[event.name]; }
};

// The names that mean something in a trace.

constexpr std::string_view kStepLabel = "ProfilerStep#";
constexpr std::string_view kUnitLabel = "unit::";
constexpr std::string_view kUnitBackwardLabel = "unit_backward::";
constexpr std::string_view kBackwardFunction = "autograd::engine::evaluate_function:";

/// A range that waits for a batch: `loader::wait`, or the DataLoader of Python.
inline bool is_loader(std::string_view name) {
  return name == "loader::wait" || name.starts_with("enumerate(DataLoader)#");
}

/// A collective's own range in c10d (torch/csrc/distributed/c10d: ProcessGroup*.cpp, the profiling titles).
inline bool is_collective_range(std::string_view name) {
  return name.starts_with("gloo:") || name.starts_with("nccl:") || name.starts_with("mpi:") || name.starts_with("ucc:");
}

/// Communication as the CPU sees it.
inline bool is_communication(std::string_view name) {
  return name.starts_with("comm::") || name.starts_with("c10d::") || name == "record_param_comms" ||
         is_collective_range(name);
}

/// NCCL's kernels: ncclDevKernel_…, before 2.19 ncclKernel_….
inline bool is_communication_kernel(std::string_view name) {
  return name.starts_with("ncclDevKernel") || name.starts_with("ncclKernel");
}

}  // namespace trainopt::trace
