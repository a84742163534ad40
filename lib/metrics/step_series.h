// Samples and seconds of a run's steps, in order and in bounded memory.
#pragma once

#include "statistics/block_bootstrap.h"

#include <cstddef>
#include <vector>

namespace trainopt {

/// When there are too many pieces, neighbours are merged in pairs: sums stay exact, pieces stay equally long, and slow
/// changes stay visible.
class StepSeries {
 public:
  explicit StepSeries(size_t steps_per_piece = 1) : steps_per_piece_(steps_per_piece) {}

  static constexpr size_t kMaxPieces = 1024;  ///< computing an interval from this many takes 30 ms

  void add(Piece step);
  /// Each covers steps_per_piece() steps; the last may cover fewer.
  std::vector<Piece> pieces() const;
  size_t steps_per_piece() const { return steps_per_piece_; }

 private:
  std::vector<Piece> pieces_;
  Piece open_;
  size_t open_steps_ = 0, steps_per_piece_;
};

}  // namespace trainopt
