// Where a run starts: its directory, claimed for this process, and the checkpoint that it resumes from.
#pragma once

#include "app/job_member.h"
#include "app/run_directory.h"
#include "checkpoint/run_lock.h"
#include "train/archive.h"
#include "train/plan.h"

#include <filesystem>
#include <optional>

namespace trainopt {

/// Rank 0 determines it for all ranks.
struct RunStart {
  RunFolder folder;                                 ///< `from`: only on rank 0
  std::optional<std::filesystem::path> checkpoint;  ///< to resume from
  bool nothing_left = false;                        ///< the run came to its end before, and the recipe asks for no more

  std::filesystem::path checkpoints() const { return folder.path / "checkpoints"; }
};

struct ClaimedRun {
  std::optional<RunLock> lock;  ///< rank 0's
  RunStart start;
  std::optional<ArchiveReader> state;  ///< of the checkpoint; until read_state(), only on rank 0
};

/// Rank 0 chooses the run directory, locks it, writes its log there from now on, and reads the state to resume from,
/// which it compares with the recipe; notes in the plan say what was found. The other ranks are told. Throws UserError.
ClaimedRun claim_run(const Recipe& recipe, Plan& plan, JobMember& member);

/// On the other ranks: the state that rank 0 has read. Throws UserError(checkpoint).
void read_state(ClaimedRun& claimed);

/// The run directory becomes this run's: what an earlier run wrote after the checkpoint is set aside, and recipe and
/// plan are written. Throws UserError(storage).
void take_over(const RunStart& start, std::optional<int64_t> resumed_step, const Recipe& recipe, const Plan& plan);

}  // namespace trainopt
