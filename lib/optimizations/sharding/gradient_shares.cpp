#include "optimizations/sharding/gradient_shares.h"

#include "base/error.h"
#include "device/tensor.h"
#include "train/autograd_hooks.h"

namespace trainopt {

GradientShares::GradientShares(FlatUnit& unit, Communicator& communicator, const GradientSharesOptions& options,
                               std::function<void()> complete)
    : unit_(unit), communicator_(communicator), options_(options), complete_(std::move(complete)) {
  const auto type = unit_.own().options();
  in_whole_.assign(unit_.pieces().size(), false);
  if (options_.keeps_whole) {
    whole_ = at::zeros({unit_.padded()}, type);
    own_ = unit_.own_part(whole_);
  } else {
    own_ = at::zeros({unit_.share()}, type);
  }
  for (size_t i = 0; i < unit_.pieces().size(); ++i) {
    const FlatPiece& piece = unit_.pieces()[i];
    at::Tensor leaf = piece.parameter;
    after_gradient(leaf, [this, i] { take(i); });
  }
}

void GradientShares::begin(bool is_last) {
  send_rest();  // the previous micro-batch's, if each one sends
  sends_ = is_last || !options_.keeps_whole;
  sent_ = false;
  taken_ = 0;
}

void GradientShares::take(size_t index) {
  const FlatPiece& piece = unit_.pieces()[index];
  if (!std::exchange(in_whole_[index], true)) {
    const at::NoGradGuard no_grad;
    at::Tensor leaf = piece.parameter;
    if (!whole_.defined()) whole_ = empty_whole();
    at::Tensor place = unit_.piece_of(whole_, piece);
    place.copy_(leaf.grad());
    if (options_.keeps_whole)
      leaf.mutable_grad() = place;  // later micro-batches accumulate in place
    else
      leaf.mutable_grad().reset();
  }
  if (++taken_ < unit_.pieces().size()) return;
  if (options_.overlap && sends_) send();
  complete_();
}

/// A buffer that backward fills; only the padding after the last piece needs initialising.
at::Tensor GradientShares::empty_whole() const {
  at::Tensor whole = at::empty({unit_.padded()}, own_.options());
  const FlatPiece& last = unit_.pieces().back();
  whole.narrow(0, last.begin + last.count, unit_.padded() - last.begin - last.count).zero_();
  return whole;
}

/// Parameters that the loss does not depend on have no gradient: use zeros.
void GradientShares::fill_gaps() {
  if (!whole_.defined()) whole_ = empty_whole();
  for (size_t i = 0; i < in_whole_.size(); ++i)
    if (!std::exchange(in_whole_[i], 0)) unit_.piece_of(whole_, unit_.pieces()[i]).zero_();
}

void GradientShares::send_rest() {
  if (sends_ && !sent_) send();
}

void GradientShares::send() {
  sent_ = true;
  fill_gaps();
  const at::Tensor whole = options_.wire_type ? whole_.to(*options_.wire_type) : whole_;
  const at::Tensor share =
      options_.wire_type || !options_.keeps_whole ? at::empty({unit_.share()}, whole.options()) : own_;
  while (flying_.size() > 1) land();  // at most two exchanges hold memory
  flying_.push_back({share, whole, communicator_.reduce_scatter(share, whole)});
  if (!options_.keeps_whole) whole_.reset();
}

void GradientShares::land() {
  Flight flight = std::move(flying_.front());
  flying_.pop_front();
  flight.exchange->wait();
  if (flight.share.is_same(own_)) return;
  const at::NoGradGuard no_grad;
  if (options_.keeps_whole || std::exchange(fresh_, false))
    own_.copy_(flight.share);
  else
    own_.add_(flight.share);
}

void GradientShares::finish() {
  while (!flying_.empty()) land();
}

void GradientShares::clear() {
  fresh_ = true;
  if (!options_.keeps_whole) return;
  for (const auto& piece : unit_.pieces()) {  // the next gradient is then copied, which is cheaper than adding to zeros
    at::Tensor leaf = piece.parameter;
    leaf.mutable_grad().reset();
  }
}

int64_t GradientShares::bytes() const { return static_cast<int64_t>((options_.keeps_whole ? whole_ : own_).nbytes()); }

}  // namespace trainopt
