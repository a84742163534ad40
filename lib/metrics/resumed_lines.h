// Keeps the record files of a resumed run free of gaps and duplicate steps.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trainopt {

/// Removes what was written after the checkpoint: every line whose step is above `step`, and a torn last line. They are
/// kept in `<file>.before-step-<step>`, so that nothing is lost if the run should not have been resumed there. A line
/// is JSON that begins with {"step":N or CSV that begins with N; a CSV header is kept. The last step of a process is
/// recorded even if `every_n_steps` excludes it; such a line of `step` is removed too, since the run continues. Does
/// nothing if the file is missing. Throws UserError(storage).
void remove_lines_after(const std::filesystem::path& file, int64_t step, int64_t every_n_steps = 1);

}  // namespace trainopt
