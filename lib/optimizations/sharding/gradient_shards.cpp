#include "optimizations/sharding/gradient_shards.h"

#include "base/error.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "train/observe/autograd_hooks.h"

namespace trainopt {

void GradientExchanges::finish() {
  while (!in_flight_.empty()) finish_oldest();
}

void GradientExchanges::finish_oldest() {
  const InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  oldest.exchange->wait();
  oldest.unit->receive(oldest.shard);
}

GradientShards::GradientShards(FlatUnit& unit, Communicator& communicator, const GradientShardsOptions& options,
                               GradientExchanges& exchanges, std::function<void()> complete)
    : unit_(unit),
      communicator_(communicator),
      options_(options),
      exchanges_(exchanges),
      complete_(std::move(complete)) {
  const auto type = unit_.own().options();
  in_full_.assign(unit_.pieces().size(), false);
  if (options_.keeps_full) {
    full_ = at::zeros({unit_.padded()}, type);
    own_ = unit_.own_part(full_);
  } else {
    own_ = at::zeros({unit_.shard_size()}, type);
  }
  for (size_t i = 0; i < unit_.pieces().size(); ++i) {
    const FlatPiece& piece = unit_.pieces()[i];
    at::Tensor leaf = piece.parameter;
    after_gradient(leaf, [this, i] { take(i); });
  }
}

void GradientShards::begin(bool is_last) {
  send_pending();  // the previous micro-batch's, if each one sends
  sends_ = is_last || !options_.keeps_full;
  sent_ = false;
  taken_ = 0;
}

void GradientShards::take(size_t index) {
  const FlatPiece& piece = unit_.pieces()[index];
  if (!std::exchange(in_full_[index], true)) {
    const at::NoGradGuard no_grad;
    at::Tensor leaf = piece.parameter;
    if (!full_.defined()) full_ = make_full_buffer();
    at::Tensor place = unit_.piece_of(full_, piece);
    place.copy_(leaf.grad());
    if (options_.keeps_full)
      leaf.mutable_grad() = place;  // later micro-batches accumulate in place
    else
      leaf.mutable_grad().reset();
  }
  if (++taken_ < unit_.pieces().size()) return;
  if (options_.overlap && sends_) send();
  complete_();
}

void GradientShards::zero_padding(at::Tensor& full) const {
  const FlatPiece& last = unit_.pieces().back();
  full.narrow(0, last.begin + last.count, unit_.padded() - last.begin - last.count).zero_();
}

/// A buffer that backward fills; only the padding after the last piece needs initialising.
at::Tensor GradientShards::make_full_buffer() const {
  const MemoryScope scope({.use = MemoryUse::gradients, .phase = "backward"});
  at::Tensor full = at::empty({unit_.padded()}, own_.options());
  zero_padding(full);
  return full;
}

/// Parameters that the loss does not depend on have no gradient: use zeros.
void GradientShards::fill_gaps() {
  if (!full_.defined()) full_ = make_full_buffer();
  for (size_t i = 0; i < in_full_.size(); ++i)
    if (!std::exchange(in_full_[i], 0)) unit_.piece_of(full_, unit_.pieces()[i]).zero_();
}

void GradientShards::send_pending() {
  if (sends_ && !sent_) send();
}

void GradientShards::send() {
  sent_ = true;
  fill_gaps();
  const at::Tensor full = options_.wire_type ? full_.to(*options_.wire_type) : full_;
  const at::Tensor shard =
      options_.wire_type || !options_.keeps_full ? at::empty({unit_.shard_size()}, full.options()) : own_;
  // At most two units have their full gradients in memory, unless these stay anyway.
  while (!options_.keeps_full && exchanges_.in_flight_.size() > 1) exchanges_.finish_oldest();
  exchanges_.in_flight_.push_back({this, shard, full, communicator_.reduce_scatter(shard, full)});
  if (!options_.keeps_full) full_.reset();
}

void GradientShards::receive(const at::Tensor& shard) {
  if (shard.is_same(own_)) return;
  const at::NoGradGuard no_grad;
  if (options_.keeps_full || std::exchange(fresh_, false))
    own_.copy_(shard);
  else
    own_.add_(shard);
}

void GradientShards::send_to_copies() {
  if (!options_.copies) return;
  of_copies_ = options_.wire_type ? own_.to(*options_.wire_type) : own_;
  between_copies_ = options_.copies->all_reduce(of_copies_);
}

void GradientShards::finish() {
  if (!options_.copies) return;
  std::exchange(between_copies_, nullptr)->wait();
  if (!of_copies_.is_same(own_)) own_.copy_(of_copies_);
  of_copies_.reset();
}

void GradientShards::clear() {
  fresh_ = true;
  if (!options_.keeps_full) return;
  zero_padding(full_);  // clipping by a non-finite norm made it NaN, and a skipped step must leave nothing behind
  for (const auto& piece : unit_.pieces()) {  // the next gradient is then copied, which is cheaper than adding to zeros
    at::Tensor leaf = piece.parameter;
    leaf.mutable_grad().reset();
  }
}

int64_t GradientShards::bytes() const { return static_cast<int64_t>((options_.keeps_full ? full_ : own_).nbytes()); }

}  // namespace trainopt
