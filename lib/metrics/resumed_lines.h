// The records of a run that goes on from a checkpoint: neither a gap nor a step twice.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trainopt {

/// Takes away what was written after the checkpoint: every line whose step is above `step`, and a torn last one. A line
/// is JSON that begins with {"step":N or CSV that begins with N; a CSV's head stays. The last step of a process is
/// recorded even where `every_n_steps` would leave it out; in the middle of a run it goes too. Nothing if the file is
/// not there. Throws UserError(storage).
void keep_lines_up_to(const std::filesystem::path& file, int64_t step, int64_t every_n_steps = 1);

}  // namespace trainopt
