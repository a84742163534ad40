// The file that PyTorch's memory viewer (docs.pytorch.org/memory_viz) shows.
#pragma once

#include "train/observe/memory_recorder.h"

#include <filesystem>
#include <string>

namespace trainopt {

/// Events that a snapshot covers.
inline constexpr size_t kSnapshotEvents = 100'000;

/// The recorder's history and live memory as a pickle in the shape of torch.cuda.memory._snapshot(): every live block
/// is a segment of its own, and the frame of an allocation is the place in the step that made it.
std::string memory_snapshot(const MemoryRecorder& recorder);

/// Writes `file`: libtorch's own history of a GPU, otherwise the recorder's. Throws UserError(storage).
void write_memory_snapshot(const std::filesystem::path& file, c10::Device device, const MemoryRecorder* recorder);

}  // namespace trainopt
