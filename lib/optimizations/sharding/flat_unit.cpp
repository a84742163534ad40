#include "optimizations/sharding/flat_unit.h"

#include "base/error.h"
#include "device/memory_label.h"
#include "device/tensor.h"

#include <algorithm>

namespace trainopt {
namespace {

/// Allocates or frees the memory behind a tensor. Its views stay valid objects; use them only while it is allocated.
void resize_storage(const at::Tensor& tensor, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (storage->nbytes() == bytes) return;
  storage->set_data_ptr_noswap(bytes == 0 ? at::DataPtr(nullptr, tensor.device())
                                          : storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

size_t bytes_of(const at::Tensor& flat) { return static_cast<size_t>(flat.numel()) * flat.element_size(); }

}  // namespace

FlatUnit::FlatUnit(const NamedTensors& parameters, Communicator& communicator, bool keeps_full)
    : communicator_(communicator), keeps_full_(keeps_full) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope({.use = MemoryUse::parameters});
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters) {
    TRAINOPT_CHECK(parameter.is_non_overlapping_and_dense() && parameter.scalar_type() == at::kFloat);
    pieces_.push_back({name, parameter, parameter.sizes().vec(), parameter.strides().vec(), count, parameter.numel()});
    count += parameter.numel();
  }
  shard_size_ = (count + communicator_.ranks() - 1) / communicator_.ranks();
  const auto options = parameters.front().second.options().requires_grad(false);
  full_ = at::zeros({padded()}, options);
  for (auto& piece : pieces_) {
    at::Tensor view = piece_of(full_, piece);
    view.copy_(piece.parameter);
    piece.parameter.set_data(view);
  }
  own_ = own_part(full_);
  if (keeps_full_) return;
  own_ = own_.clone();
  release();
}

FlatUnit::Range FlatUnit::own_range(const FlatPiece& piece) const {
  const int64_t first = communicator_.rank() * shard_size_, begin = std::max(piece.begin, first),
                end = std::min(piece.begin + piece.count, first + shard_size_);
  if (begin >= end) return {};
  return {.in_piece = begin - piece.begin, .in_own = begin - first, .count = end - begin};
}

at::Tensor FlatUnit::gather_full(const at::Tensor& own) const {
  at::Tensor all = at::empty({padded()}, own.options());
  communicator_.all_gather(all, own)->wait();
  return all;
}

void FlatUnit::gather() {
  if (fresh_) return;
  const MemoryScope scope({.use = MemoryUse::parameters, .phase = "gathering"});
  if (!keeps_full_) resize_storage(full_, bytes_of(full_));
  fresh_ = true;
  pending_exchange_ = communicator_.all_gather(full_, own_);
}

void FlatUnit::use() {
  gather();
  finish_exchange();
}

/// A pending exchange must end before its memory is freed.
void FlatUnit::finish_exchange() {
  if (pending_exchange_) std::exchange(pending_exchange_, nullptr)->wait();
}

void FlatUnit::release() {
  if (keeps_full_) return;
  finish_exchange();
  resize_storage(full_, 0);
  fresh_ = false;
}

void FlatUnit::mark_stale() {
  finish_exchange();
  fresh_ = false;
}

}  // namespace trainopt
