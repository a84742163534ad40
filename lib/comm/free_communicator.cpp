#include "comm/free_communicator.h"

#include "comm/c10d_communicator.h"
#include "device/tensor.h"

namespace trainopt {
namespace {

class NoWork : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

/// What c10d's Reducer calls itself, to agree on the order of its buckets.
class NoBackend : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "free"; }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>&, const c10d::BroadcastOptions&) override {
    return c10::make_intrusive<NoWork>();
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<NoWork>();
  }
};

class NoExchange : public Exchange {
 public:
  void wait() override {}
};

class FreeCommunicator : public ProcessGroupCommunicator {
 public:
  explicit FreeCommunicator(const RankPosition& position) : position_(position) {
    const int rank = static_cast<int>(position.rank), ranks = static_cast<int>(position.ranks);
    group_ = c10::make_intrusive<c10d::ProcessGroup>(rank, ranks);
    const auto backend = c10::make_intrusive<NoBackend>(rank, ranks);
    for (const c10::DeviceType type : {at::kCPU, at::kCUDA})
      group_->setBackend(type, c10d::ProcessGroup::BackendType::CUSTOM, backend);
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  }

  const RankPosition& position() const override { return position_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const override { return group_; }

  std::unique_ptr<Exchange> all_reduce(at::Tensor) override { return std::make_unique<NoExchange>(); }
  std::unique_ptr<Exchange> broadcast(at::Tensor, int64_t) override { return std::make_unique<NoExchange>(); }
  std::unique_ptr<Exchange> reduce_scatter(at::Tensor mine, at::Tensor all) override {
    const at::Tensor own = parts_of(all, mine)[position_.rank];
    if (own.data_ptr() != mine.data_ptr()) copy(mine.view(-1), own);
    return std::make_unique<NoExchange>();
  }
  std::unique_ptr<Exchange> all_gather(at::Tensor all, at::Tensor mine) override {
    const at::Tensor parts = parts_of(all, mine);
    if (parts[position_.rank].data_ptr() != mine.data_ptr()) copy(parts, mine.view({1, -1}).expand_as(parts));
    return std::make_unique<NoExchange>();
  }
  std::unique_ptr<Exchange> send(at::Tensor, int64_t) override { return std::make_unique<NoExchange>(); }
  /// No other rank is there: what it would send is zeros.
  std::unique_ptr<Exchange> receive(at::Tensor data, int64_t) override {
    data.zero_();
    return std::make_unique<NoExchange>();
  }
  std::unique_ptr<Communicator> among(const std::vector<int64_t>& ranks) override {
    return make_free_communicator(position_among(ranks, position_));
  }
  std::vector<double> gather(std::span<const double> mine) override {
    std::vector<double> all;
    for (int64_t rank = 0; rank < position_.ranks; ++rank) all.insert(all.end(), mine.begin(), mine.end());
    return all;
  }
  Traffic take_traffic() override { return {}; }

 private:
  /// [ranks × mine]
  at::Tensor parts_of(const at::Tensor& all, const at::Tensor& mine) const {
    TRAINOPT_CHECK(all.is_contiguous() && mine.is_contiguous() && all.scalar_type() == mine.scalar_type());
    TRAINOPT_CHECK_EQUAL(all.numel(), mine.numel() * position_.ranks);
    return all.view({position_.ranks, -1});
  }
  static void copy(const at::Tensor& to, const at::Tensor& from) {
    const at::NoGradGuard no_grad;
    to.copy_(from);
  }

  RankPosition position_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_free_communicator(const RankPosition& position) {
  return std::make_unique<FreeCommunicator>(position);
}

}  // namespace trainopt
