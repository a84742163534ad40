#include "train/hidden_waits.h"

#include "base/counted.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trainopt {
namespace {

constexpr std::string_view kReadsValue = "the host reads a value from the device",
                           kSizeDepends = "the size of the result depends on values on the device";

/// Operations that cannot return before the device has computed their input. Others wait only through one of these:
/// item() and is_nonzero() read with _local_scalar_dense, indexing by a mask and argwhere() call nonzero, allclose()
/// calls item().
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReading{
    {{"aten::_local_scalar_dense", kReadsValue},
     {"aten::equal", kReadsValue},
     {"aten::nonzero", kSizeDepends},
     {"aten::masked_select", kSizeDepends},
     {"aten::_unique", kSizeDepends},
     {"aten::_unique2", kSizeDepends},
     {"aten::unique_dim", kSizeDepends},
     {"aten::unique_consecutive", kSizeDepends},
     {"aten::unique_dim_consecutive", kSizeDepends},
     {"aten::bincount", kSizeDepends},
     {"aten::repeat_interleave", "the size of the result is the sum of the repeats; pass output_size"}}};

}  // namespace

std::string_view why_reading_waits(std::string_view operation) {
  const auto found =
      std::find_if(kReading.begin(), kReading.end(), [&](const auto& entry) { return entry.first == operation; });
  return found == kReading.end() ? std::string_view() : found->second;
}

std::string_view why_copying_waits(const HostCopy& copy) {
  if (copy.to_host)
    return copy.non_blocking && copy.pinned ? ""
           : copy.non_blocking              ? "a copy to pageable host memory waits although it is non-blocking"
                                            : "a blocking copy to the host";
  if (!copy.pinned)
    return copy.non_blocking ? "a copy from pageable host memory, which the driver first copies to page-locked memory"
                             : "a blocking copy from pageable host memory";
  return copy.non_blocking ? "" : "a blocking copy, although the host memory is page-locked";
}

std::string hidden_waits_text(const std::vector<HiddenWait>& waits, int64_t step, bool on_cpu) {
  const std::string of_gpu = on_cpu ? " (operations that would wait on a GPU; copies are not checked on a CPU)" : "";
  if (waits.empty()) return fmt::format("hidden waits: none in step {}{}", step, of_gpu);
  std::string text = fmt::format("hidden waits in step {}{}", step, of_gpu);
  for (const HiddenWait& wait : waits)
    text += fmt::format(
        "\n  {}: {}{}{}: {}", wait.operation, counted(wait.calls, "call"),
        wait.ms ? fmt::format(", {:.3f} ms", *wait.ms) : "",
        wait.unit.empty() ? fmt::format(" in {}", wait.where) : fmt::format(" in {} of unit {}", wait.where, wait.unit),
        wait.why);
  return text;
}

Json hidden_waits_json(const std::vector<HiddenWait>& waits) {
  Json json = Json::array();
  for (const HiddenWait& wait : waits)
    json.push_back({{"operation", wait.operation},
                    {"where", wait.where},
                    {"unit", wait.unit.empty() ? Json() : Json(wait.unit)},
                    {"calls", wait.calls},
                    {"ms", wait.ms ? Json(*wait.ms) : Json()},
                    {"why", wait.why}});
  return json;
}

}  // namespace trainopt
