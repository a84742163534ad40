// What ranks exchange. A world of one rank is a communicator too: everything it is given comes back, and nobody asks
// whether there are others.
#pragma once

#include "comm/rank_position.h"
#include "device/stream.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace trainopt {

enum class Collective : size_t { all_reduce, reduce_scatter, all_gather, broadcast };
inline constexpr size_t kCollectiveCount = 4;
inline constexpr std::array<std::string_view, kCollectiveCount> kCollectiveNames{"all_reduce", "reduce_scatter",
                                                                                 "all_gather", "broadcast"};

/// Bytes that each of `ranks` must send for a collective over `bytes`, at least: all-reduce 2(n−1)/n, reduce-scatter
/// and all-gather (n−1)/n of the whole, broadcast 1 (Patarasuk and Yuan 2009; the bus-bandwidth factors of nccl-tests).
double wire_bytes(Collective collective, int64_t bytes, int64_t ranks);

/// Since the last take_traffic().
struct Traffic {
  std::array<int64_t, kCollectiveCount>
      bytes{};  ///< handed over for each collective: the whole, whatever the share of a rank
  std::array<int64_t, kCollectiveCount> calls{};
  double waited_ms = 0;  ///< the training thread, for exchanges it could not go on without
  std::vector<std::shared_ptr<const EventSpan>> stalls;  ///< on a GPU: its stream, likewise

  /// By the factors of wire_bytes().
  double wire_bytes(int64_t ranks) const;
};

/// One exchange on its way. Its tensors belong to it until wait() has returned.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Until the results may be used: on the CPU when they are there, on a GPU once work queued from now on comes after
  /// them. Throws UserError(lost) if a rank is gone or silent for too long. Once only.
  virtual void wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const RankPosition& position() const = 0;
  int64_t ranks() const { return position().ranks; }
  int64_t rank() const { return position().rank; }

  // Of contiguous tensors on the job's device. Every rank calls the same ones in the same order, with tensors of the
  // same size and type.
  /// `data` becomes the sum over the ranks.
  virtual std::unique_ptr<Exchange> all_reduce(at::Tensor data) = 0;
  /// `mine`, ranks times smaller than `all`, becomes the sum over the ranks of this rank's part of `all`. `all` may be
  /// overwritten.
  virtual std::unique_ptr<Exchange> reduce_scatter(at::Tensor mine, at::Tensor all) = 0;
  /// `all`, ranks times larger than `mine`, becomes the ranks' `mine` one after another. `mine` may be this rank's part
  /// of `all`.
  virtual std::unique_ptr<Exchange> all_gather(at::Tensor all, at::Tensor mine) = 0;
  virtual std::unique_ptr<Exchange> broadcast(at::Tensor data, int64_t root) = 0;

  /// Some numbers of the host, of every rank: [rank × n]. Waits for the others, not for the device; no traffic, but on
  /// CPUs waiting.
  virtual std::vector<double> gather(std::span<const double> mine) = 0;

  virtual Traffic take_traffic() = 0;
};

std::unique_ptr<Communicator> make_single_communicator();

}  // namespace trainopt
