// Agreement between ranks, with a communicator that simulates the other ranks.
#include "train/ranks.h"

#include "support/catch.h"

using namespace trainopt;

namespace {

/// Communicator of rank 0 of two; the test sets what the other rank contributes.
class WithOther : public Communicator {
 public:
  const RankPosition& position() const override { return position_; }
  std::unique_ptr<Exchange> all_reduce(at::Tensor) override { return nullptr; }
  std::unique_ptr<Exchange> reduce_scatter(at::Tensor, at::Tensor) override { return nullptr; }
  std::unique_ptr<Exchange> all_gather(at::Tensor, at::Tensor) override { return nullptr; }
  std::unique_ptr<Exchange> broadcast(at::Tensor, int64_t) override { return nullptr; }
  std::unique_ptr<Exchange> send(at::Tensor, int64_t) override { return nullptr; }
  std::unique_ptr<Exchange> receive(at::Tensor, int64_t) override { return nullptr; }
  std::unique_ptr<Communicator> among(const std::vector<int64_t>&) override { return nullptr; }
  std::vector<double> gather(std::span<const double> mine) override {
    std::vector<double> all(mine.begin(), mine.end());
    all.insert(all.end(), other.begin(), other.end());
    return all;
  }
  Traffic take_traffic() override { return std::exchange(traffic, {}); }

  std::vector<double> other;
  Traffic traffic;

 private:
  RankPosition position_{.rank = 0, .ranks = 2};
};

}  // namespace

TEST_CASE("ranks follow the first signal, any request for a checkpoint and rank 0's clock") {
  WithOther communicator;
  RankAgreement ranks(communicator);
  communicator.other = {0, 0, 1};
  ranks.agree({});
  CHECK_FALSE(ranks.stopped());
  CHECK_FALSE(ranks.agreed().save);
  CHECK_FALSE(ranks.agreed().out_of_time);  // only the other rank is out of time
  communicator.other = {15, 1, 0};
  ranks.agree({.out_of_time = true});
  CHECK(ranks.agreed().stop_signal == 15);
  CHECK(ranks.agreed().save);
  CHECK(ranks.agreed().out_of_time);
  ranks.agree({.stop_signal = 2});
  CHECK(ranks.agreed().stop_signal == 2);
  CHECK_FALSE(ranks.agreed().out_of_time);
}

TEST_CASE("the ranks' records of a step are merged into one") {
  WithOther communicator;
  RankAgreement ranks(communicator);
  communicator.other = {0.25, 8, 1, 30, 3, 2};
  StepRecord row;
  row[Metric::loss] = 0.5;
  row[Metric::grad_norm] = 4;
  row[Metric::nonfinite] = 0;
  row[Metric::step_ms] = 20;
  const StepRecord merged = ranks.over_ranks(row);
  CHECK(*merged[Metric::loss] == 0.75);
  CHECK(*merged[Metric::grad_norm] == 4);
  CHECK(*merged[Metric::nonfinite] == 1);
  CHECK(*merged[Metric::step_ms] == 20);
  REQUIRE(merged.ranks.size() == 2);
  CHECK(merged.ranks[0].step_ms == 20);
  CHECK(merged.ranks[1].step_ms == 30);
  CHECK(merged.ranks[1].comm_exposed_ms == 2);
}

TEST_CASE("with one rank, wishes and records are unchanged") {
  const auto communicator = make_single_communicator();
  RankAgreement ranks(*communicator);
  ranks.agree({.stop_signal = 10, .save = true});
  CHECK(ranks.agreed().stop_signal == 10);
  CHECK(ranks.agreed().save);
  StepRecord row;
  row[Metric::loss] = 0.5;
  CHECK(ranks.over_ranks(row).ranks.empty());
  PendingRecord record;
  CHECK(ranks.add_traffic(record).all == 0);
}
