// The gradients of a flat unit: as backward completes them they become this rank's share of their sum over the ranks.
#pragma once

#include "optimizations/sharding/flat_unit.h"

#include <deque>
#include <functional>
#include <optional>

namespace trainopt {

struct GradientSharesOptions {
  bool keeps_whole =
      false;            ///< micro-batches add up here, and the last one's backward sends; otherwise each one's does
  bool overlap = true;  ///< false: nothing is sent before backward has ended
  std::optional<at::ScalarType> wire_type;  ///< rounded to it for the exchange
};

class GradientShares {
 public:
  /// Hooks the parameters of `unit`. `complete` is called when backward has been through all of them.
  GradientShares(FlatUnit& unit, Communicator& communicator, const GradientSharesOptions& options,
                 std::function<void()> complete);
  GradientShares(const GradientShares&) = delete;
  GradientShares& operator=(const GradientShares&) = delete;

  /// Before each micro-batch.
  void begin(bool is_last);
  /// After the last: sends what was not complete (a parameter that no loss depends on has no gradient) or had to wait.
  void send_rest();
  /// own() is the sum over the step and the ranks from here on.
  void finish();
  void clear();

  /// share() numbers
  const at::Tensor& own() const { return own_; }
  int64_t bytes() const;

 private:
  struct Flight {
    at::Tensor share, whole;
    std::unique_ptr<Exchange> exchange;
  };
  void take(size_t piece);
  at::Tensor empty_whole() const;
  void fill_gaps();
  void send();
  void land();

  FlatUnit& unit_;
  Communicator& communicator_;
  GradientSharesOptions options_;
  std::function<void()> complete_;
  at::Tensor whole_, own_;
  std::vector<char> in_whole_;         ///< pieces whose gradient is there since the last send
  bool fresh_ = true;                  ///< own() is of the step before: what lands first replaces it
  size_t taken_ = 0;                   ///< pieces of this micro-batch
  bool sends_ = false, sent_ = false;  ///< this micro-batch's are to be sent; and have been
  std::deque<Flight> flying_;
};

}  // namespace trainopt
