// The gradients of a flat unit: when backward completes them, they are reduce-scattered, so that each rank holds its
// share of their sum over the ranks. With hybrid sharding, the shares are then summed over the machines.
#pragma once

#include "optimizations/sharding/sharded_parameters.h"

#include <deque>
#include <functional>
#include <optional>

namespace trainopt {

struct GradientShardsOptions {
  bool keeps_full = false;  ///< micro-batches accumulate locally and only the last one sends; otherwise each one sends
  bool overlap = true;      ///< false: nothing is sent before backward has ended
  std::optional<at::ScalarType> wire_type;  ///< gradients are rounded to this type for the exchange
  Communicator* copies = nullptr;  ///< between the ranks that hold the same share; null: it is on this rank only
};

class GradientShards;

/// The exchanges under way, of all units in the order of their backward.
class GradientExchanges {
 public:
  void finish();

 private:
  friend GradientShards;
  struct InFlight {
    GradientShards* unit;
    at::Tensor shard, full;
    std::unique_ptr<Exchange> exchange;
  };
  void finish_oldest();

  std::deque<InFlight> in_flight_;
};

class GradientShards {
 public:
  /// Installs hooks on the parameters of `unit`. Calls `complete` when backward has produced all their gradients.
  /// `exchanges`: of all units of the model.
  GradientShards(FlatUnit& unit, Communicator& communicator, const GradientShardsOptions& options,
                 GradientExchanges& exchanges, std::function<void()> complete);
  GradientShards(const GradientShards&) = delete;
  GradientShards& operator=(const GradientShards&) = delete;

  /// Call before each micro-batch.
  void begin(bool is_last);
  /// Call after the last micro-batch. Sends gradients that were not complete (a parameter that the loss does not depend
  /// on has none) or that were not to overlap.
  void send_pending();
  /// Starts the exchange between copies of the share. Call after GradientExchanges::finish().
  void send_to_copies();
  /// Waits for that exchange; own() is then the sum over the step and the ranks.
  void finish();
  void clear();

  /// shard_size() elements
  const at::Tensor& own() const { return own_; }
  int64_t bytes() const;

 private:
  friend GradientExchanges;
  void take(size_t piece);
  at::Tensor make_full_buffer() const;
  void zero_padding(at::Tensor& full) const;
  void fill_gaps();
  void send();
  void receive(const at::Tensor& shard);

  FlatUnit& unit_;
  Communicator& communicator_;
  GradientShardsOptions options_;
  GradientExchanges& exchanges_;
  std::function<void()> complete_;
  at::Tensor full_, own_;
  std::vector<char> in_full_;          ///< pieces whose gradient has arrived since the last send
  bool fresh_ = true;                  ///< own() is from the previous step: the first result overwrites it
  size_t taken_ = 0;                   ///< pieces of this micro-batch that have arrived
  bool sends_ = false, sent_ = false;  ///< whether this micro-batch's gradients are to be sent, and were sent
  at::Tensor of_copies_;               ///< own(), or rounded for the exchange
  std::unique_ptr<Exchange> between_copies_;
};

}  // namespace trainopt
