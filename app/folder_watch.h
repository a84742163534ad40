// A run directory may be renamed or removed while its run writes to it, and another run may take its name.
#pragma once

#include "app/run_end.h"
#include "base/clock.h"
#include "base/held_folder.h"

#include <optional>
#include <string>

namespace trainopt {

class FolderWatch {
 public:
  explicit FolderWatch(const HeldFolder& folder, std::filesystem::path run_dir)
      : folder_(folder), run_dir_(std::move(run_dir)) {}

  /// Looks once a second where the directory's name leads. Says it once if the directory was renamed: the run goes on
  /// in it. Asks the run to stop if the name leads elsewhere. Throws UserError(storage) if the directory was removed.
  void look();
  /// The run's end if the name leads elsewhere now: whoever waits for the run's results there would find another's.
  std::optional<RunEnd> corrected(const RunEnd& end) const;

 private:
  const HeldFolder& folder_;
  std::filesystem::path run_dir_;
  Clock::time_point looked_at_ = Clock::now();
  bool said_ = false;
};

}  // namespace trainopt
