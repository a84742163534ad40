// A trace in memory: of each event only what the analysis needs, with interned names. All times are nanoseconds on the
// trace's own clock.
#pragma once

#include "trace/names.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt::trace {

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
  int64_t correlation = -1;  ///< of the runtime call that launched it; -1: none
  int64_t bytes = 0;         ///< copied or filled
  int64_t blocks = -1;       ///< in the grid; -1: unknown
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
  std::optional<int64_t> ranks;           ///< of the job, if the file says so
  std::shared_ptr<const Names> names;     ///< shared by the ranks of a file
  std::vector<HostEvent> host;            ///< in file order
  std::vector<DeviceEvent> device;        ///< in file order
  std::vector<std::string> device_names;  ///< from `deviceProperties`

  std::string_view name(const HostEvent& event) const { return (*names)[event.name]; }
  std::string_view name(const DeviceEvent& event) const { return (*names)[event.name]; }
};

}  // namespace trainopt::trace
