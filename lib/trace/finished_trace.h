// Completes a trace that libtorch's profiler has written: rank, call stacks, compression.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trainopt::trace {

struct TraceOrigin {
  int64_t rank = 0, ranks = 1;
  /// Give each operation the argument "Call stack": the names of the labels around it, outermost first, separated by
  /// semicolons, as torch.profiler writes the frames of a Python stack.
  bool call_stacks = false;
};

/// Reads `raw`, writes it to `finished` compressed with gzip and with "distributedInfo" as torch.profiler writes it,
/// and removes `raw`, also if it fails. Throws UserError(storage).
void finish_trace(const std::filesystem::path& raw, const std::filesystem::path& finished, const TraceOrigin& origin);

}  // namespace trainopt::trace
