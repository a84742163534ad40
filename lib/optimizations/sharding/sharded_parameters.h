// ZeRO (Rajbhandari et al. 2020): each rank updates its share of the parameters and holds the optimizer state of that
// share only. With ZeRO-2 it also holds only its share of the gradients. With ZeRO-3 it also holds only its share of
// the parameters, which are gathered unit by unit when they are used.
#pragma once

#include "comm/communicator.h"
#include "comm/config.h"
#include "model/weights_file.h"
#include "train/parameter_store.h"
#include "train/slot.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace trainopt {

/// Wraps the model's units. All ranks start with rank 0's parameters and buffers. Every rank must call it.
std::unique_ptr<ParameterStore> make_sharded_parameters(const BuildContext& context, const ParallelConfig& config);

// The parameters of one or more units of a model in one contiguous buffer, cut into one equal shard per rank (FSDP's
// flat parameter: Zhao et al. 2023). The model's tensors are views of it and keep their layouts.

/// A parameter's position in the flat buffer, counted in elements.
struct FlatPiece {
  std::string name;
  at::Tensor parameter;  ///< the model's
  std::vector<int64_t> sizes, strides;
  int64_t begin = 0, count = 0;
};

class FlatUnit {
 public:
  /// Moves the parameters into the flat buffer. `keeps_full`: the whole buffer stays allocated; otherwise only this
  /// rank's shard does, and the rest exists between gather() and release().
  FlatUnit(const NamedTensors& parameters, Communicator& communicator, bool keeps_full);

  const std::vector<FlatPiece>& pieces() const { return pieces_; }
  int64_t padded() const { return shard_size_ * communicator_.ranks(); }  ///< elements of the whole buffer
  int64_t shard_size() const { return shard_size_; }                      ///< elements of one rank's shard
  /// This rank's shard; a view of the whole buffer if that is kept.
  const at::Tensor& own() const { return own_; }
  /// This rank's part of `flat`, which has padded() elements.
  at::Tensor own_part(const at::Tensor& flat) const {
    return flat.narrow(0, communicator_.rank() * shard_size_, shard_size_);
  }
  /// A view of `flat` with a parameter's shape and layout.
  at::Tensor piece_of(const at::Tensor& flat, const FlatPiece& piece) const {
    return flat.as_strided(piece.sizes, piece.strides, flat.storage_offset() + piece.begin);
  }
  /// This rank's part of a piece: its offsets in the piece and in own(). Count is 0 if the rank has no part of it.
  struct Range {
    int64_t in_piece = 0, in_own = 0, count = 0;
  };
  Range own_range(const FlatPiece& piece) const;
  at::Tensor gather_full(const at::Tensor& own) const;  ///< all ranks' `own`, concatenated; every rank must call it

  /// Starts to all-gather the shards into the whole buffer, unless they are already there or on their way.
  void gather();
  /// Gathers if necessary, and waits.
  void use();
  /// Frees the whole buffer, unless it is kept.
  void release();
  /// Marks the whole buffer as out of date, after the shards have changed.
  void mark_stale();

 private:
  void finish_exchange();

  Communicator& communicator_;
  bool keeps_full_;
  std::vector<FlatPiece> pieces_;
  int64_t shard_size_ = 0;
  at::Tensor full_, own_;
  bool fresh_ = true;  ///< the whole buffer agrees with the shards, or will once the pending gather ends
  std::unique_ptr<Exchange> pending_exchange_;
};

}  // namespace trainopt
