// Where a run starts: its directory, claimed for this process, and the checkpoint that it resumes from.
#pragma once

#include "base/files/held_folder.h"
#include "checkpoint/run_lock.h"
#include "run/directory.h"
#include "run/job_member.h"
#include "train/checkpoint/archive.h"
#include "train/plan.h"

#include <filesystem>
#include <memory>
#include <optional>

namespace trainopt {

/// Rank 0 determines it for all ranks.
struct RunStart {
  RunFolder folder;                                 ///< `from` is set only on rank 0
  std::optional<std::filesystem::path> checkpoint;  ///< the checkpoint to resume from
  bool already_finished = false;                    ///< the run has finished, and the recipe asks for no further steps

  std::filesystem::path checkpoints() const { return checkpoints_in(folder.path); }
};

struct ClaimedRun {
  std::unique_ptr<HeldFolder> folder;  ///< the run directory, also once its name leads elsewhere
  std::optional<RunLock> lock;         ///< set on rank 0 only
  RunStart start;
  std::optional<ArchiveReader> state;  ///< reads the checkpoint; until read_state(), only on rank 0

  /// Whether the state is one of this run directory.
  bool is_own() const { return state && start.folder.own; }
};

/// Rank 0 chooses and locks the run directory, starts its log there, and reads the state to resume from, which it
/// compares with the recipe; it notes in the plan what it found. After a restart it also says where the run goes on.
/// The other ranks receive the result, and all hold the directory. Throws UserError.
ClaimedRun claim_run(const Recipe& recipe, Plan& plan, JobMember& member);

/// On the other ranks: reads the state that rank 0 has chosen. Throws UserError(checkpoint).
void read_state(ClaimedRun& claimed);

/// Makes the run directory this run's: sets aside the checkpoints that an earlier run wrote after the one to resume
/// from, and writes recipe and plan. Throws UserError(storage).
void prepare_run_directory(const RunStart& start, std::optional<int64_t> resumed_step, const Recipe& recipe,
                           const Plan& plan);

}  // namespace trainopt
