// The parameters of some units of a model in one piece of memory, cut into as many equal shares as there are ranks (the
// flat parameter of FSDP: Zhao et al. 2023). The model's tensors are views of it, each in the layout it had.
#pragma once

#include "comm/communicator.h"
#include "model/tensor_file.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace trainopt {

/// Where a parameter lies in the flat memory.
struct FlatPiece {
  std::string name;
  at::Tensor parameter;  ///< the model's
  std::vector<int64_t> sizes, strides;
  int64_t begin = 0, count = 0;
};

class FlatUnit {
 public:
  /// Moves the parameters into flat memory. `keeps_whole`: all of it stays here; otherwise only this rank's share does,
  /// and the rest is there between gather() and release().
  FlatUnit(const NamedTensors& parameters, Communicator& communicator, bool keeps_whole);

  const std::vector<FlatPiece>& pieces() const { return pieces_; }
  int64_t padded() const { return share_ * communicator_.ranks(); }  ///< numbers of the whole
  int64_t share() const { return share_; }                           ///< numbers of a rank's part
  /// This rank's numbers; of the whole where that stays.
  const at::Tensor& own() const { return own_; }
  /// The part of `flat`, of padded() numbers, that is this rank's.
  at::Tensor own_part(const at::Tensor& flat) const { return flat.narrow(0, communicator_.rank() * share_, share_); }
  /// A view of `flat` with a parameter's shape and layout.
  at::Tensor piece_of(const at::Tensor& flat, const FlatPiece& piece) const {
    return flat.as_strided(piece.sizes, piece.strides, flat.storage_offset() + piece.begin);
  }
  /// What of a piece is this rank's: its range in the piece and its place in own(); nothing: count is 0.
  struct Range {
    int64_t in_piece = 0, in_own = 0, count = 0;
  };
  Range own_range(const FlatPiece& piece) const;
  at::Tensor whole_of(const at::Tensor& own) const;  ///< every rank's, one after another; every rank must call it

  /// Begins to fill the whole with every rank's share, unless it is there or on its way.
  void gather();
  /// Waits for it.
  void use();
  /// Gives the whole's memory back; not where it stays.
  void release();
  /// The shares have changed: what is in the whole is old.
  void outdate();

 private:
  void finish_exchange();

  Communicator& communicator_;
  bool keeps_whole_;
  std::vector<FlatPiece> pieces_;
  int64_t share_ = 0;
  at::Tensor whole_, own_;
  bool fresh_ = true;  ///< the whole is what the shares say, or will be
  std::unique_ptr<Exchange> coming_;
};

}  // namespace trainopt
