// Collectives between ranks. With a single rank the communicator returns its inputs, so callers need no special case.
#pragma once

#include "base/error.h"
#include "base/threads.h"
#include "comm/config.h"
#include "device/gpu_error.h"
#include "device/stream.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// `send`: from one rank to another, counted where it is sent.
enum class Collective : size_t { all_reduce, reduce_scatter, all_gather, broadcast, send };
inline constexpr size_t kCollectiveCount = 5;
inline constexpr std::array<std::string_view, kCollectiveCount> kCollectiveNames{"all_reduce", "reduce_scatter",
                                                                                 "all_gather", "broadcast", "send"};

/// Lower bound on the bytes that each of n = `ranks` ranks sends for a collective over `bytes`: all-reduce 2(n−1)/n,
/// reduce-scatter and all-gather (n−1)/n of the full tensor, broadcast and send 1 (Patarasuk and Yuan 2009; the
/// bus-bandwidth factors of nccl-tests).
double wire_bytes(Collective collective, int64_t bytes, int64_t ranks);

/// Traffic since the last take_traffic().
struct Traffic {
  std::array<int64_t, kCollectiveCount> bytes{};  ///< per collective: size of the full tensor, not of one rank's part
  std::array<int64_t, kCollectiveCount> calls{};
  double waited_ms = 0;                                  ///< time the training thread was blocked in exchanges
  std::vector<std::shared_ptr<const EventSpan>> stalls;  ///< on a GPU: spans in which the stream was blocked

  /// Bytes sent, by the factors of trainopt::wire_bytes().
  double wire_bytes(int64_t ranks) const;
};

/// One exchange in flight. Do not touch its tensors until wait() has returned.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Waits until the results may be used: on the CPU until they have arrived; on a GPU only the current stream waits.
  /// Throws LostRank if a rank is gone or silent for too long. Call once.
  virtual void wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const RankPosition& position() const = 0;
  int64_t ranks() const { return position().ranks; }
  int64_t rank() const { return position().rank; }

  // Tensors must be contiguous and on the job's device. Every rank must make the same calls in the same order, with
  // tensors of the same size and type.
  /// `data` becomes the sum over the ranks.
  virtual std::unique_ptr<Exchange> all_reduce(at::Tensor data) = 0;
  /// `mine`, ranks times smaller than `all`, becomes the sum over the ranks of this rank's part of `all`. `all` may be
  /// overwritten.
  virtual std::unique_ptr<Exchange> reduce_scatter(at::Tensor mine, at::Tensor all) = 0;
  /// `all`, ranks times larger than `mine`, becomes the concatenation of all ranks' `mine` in rank order. `mine` may be
  /// this rank's part of `all`.
  virtual std::unique_ptr<Exchange> all_gather(at::Tensor all, at::Tensor mine) = 0;
  virtual std::unique_ptr<Exchange> broadcast(at::Tensor data, int64_t root) = 0;

  // Only the two ranks call these. What one rank sends another arrives in the order of the calls. On a GPU a message
  // may wait until the other rank receives it, and holds up this communicator's later messages to and from that rank.
  virtual std::unique_ptr<Exchange> send(at::Tensor data, int64_t to) = 0;
  virtual std::unique_ptr<Exchange> receive(at::Tensor data, int64_t from) = 0;

  /// A communicator of some of these ranks, in the given order; this rank must be among them. Every rank of this
  /// communicator must make the call at the same place of its calls, each with its own list; ranks on one list pass the
  /// same. It counts its own traffic, and must not outlive this one.
  virtual std::unique_ptr<Communicator> among(const std::vector<int64_t>& ranks) = 0;

  /// Gathers a few host values from every rank: [rank × n]. Waits for the other ranks, not for the device. Counts no
  /// traffic; on CPUs it counts as waiting.
  virtual std::vector<double> gather(std::span<const double> mine) = 0;

  virtual Traffic take_traffic() = 0;
};

/// One text from every rank, in rank order, on every rank. Every rank must call it. Throws LostRank.
std::vector<std::string> gather_texts(Communicator& communicator, std::string_view mine);

std::unique_ptr<Communicator> make_single_communicator();

/// The position in a communicator of these ranks (among()) of the rank at `position`, on whose job's machines as many
/// ranks follow each other as on its own.
RankPosition position_among(const std::vector<int64_t>& ranks, const RankPosition& position);

// A communicator whose exchanges take no time: for measuring what communication costs.

/// The communicator of one rank of `position.ranks`, which needs no other rank to exist: every exchange returns at
/// once, without sending or waiting, and counts no traffic. all_reduce and broadcast leave the data as they are,
/// reduce_scatter returns this rank's part, gather repeats this rank's values for every rank. all_gather repeats `mine`
/// in every part; if `mine` is already in `all`, the other parts keep what they hold. So every value is defined, but
/// training is not the job's: only the time of a step means something. For tensors on any device.
std::unique_ptr<Communicator> make_free_communicator(const RankPosition& position);

// Exchanges without data, for forecasts of memory.

/// Stands for the communicator of one rank of `position.ranks` on `device`, for meta tensors: every exchange returns at
/// once, and holds as long as it exists what the real one would allocate.
std::unique_ptr<Communicator> make_shaped_communicator(const RankPosition& position, c10::Device device);

// One error type for whatever c10d throws when a rank is gone or silent. Job::explain() finds out which rank it was.

class LostRank : public UserError {
 public:
  /// `what`: c10d's own message, for the log.
  explicit LostRank(std::string what)
      : UserError("another rank is gone or was silent for longer than parallel.timeout", ExitCode::peer),
        cause_(std::move(what)) {}
  const std::string& cause() const { return cause_; }

 private:
  std::string cause_;
};

/// Another rank reports why the job failed; this one ends with the same code and reports nothing.
class PeerFailed : public UserError {
 public:
  using UserError::UserError;
};

/// A failure's code as another rank has written it. Nothing makes a failure a success.
inline ExitCode code_of_peer(int written) {
  return written > 0 && written < 128 ? static_cast<ExitCode>(written) : ExitCode::peer;
}

/// Runs a call into c10d and turns any exception but a GPU fault into LostRank.
template <class Call>
auto or_lost_rank(Call call) {
  try {
    return call();
  } catch (const LostRank&) {
    throw;
  } catch (const std::exception& error) {                     // named recovery: c10d has no specific exception type
    if (gpu_fault(error) || is_out_of_threads(error)) throw;  // this rank's own
    throw LostRank(error.what());
  }
}

}  // namespace trainopt
