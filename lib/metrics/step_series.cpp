#include "metrics/step_series.h"

namespace trainopt {
namespace {

Piece merged(const Piece& a, const Piece& b) { return {a.samples + b.samples, a.seconds + b.seconds}; }

}  // namespace

void StepSeries::add(Piece step) {
  open_ = merged(open_, step);
  if (++open_steps_ < steps_per_piece_) return;
  pieces_.push_back(open_);
  open_ = {};
  open_steps_ = 0;
  if (pieces_.size() < kMaxPieces) return;
  for (size_t i = 0; i < kMaxPieces / 2; ++i) pieces_[i] = merged(pieces_[2 * i], pieces_[2 * i + 1]);
  pieces_.resize(kMaxPieces / 2);
  steps_per_piece_ *= 2;
}

std::vector<Piece> StepSeries::pieces() const {
  std::vector<Piece> all = pieces_;
  if (open_steps_ > 0) all.push_back(open_);
  return all;
}

}  // namespace trainopt
