#include "comm/communicator.h"

#include "base/error.h"
#include "comm/c10d_communicator.h"
#include "device/tensor.h"

#include <algorithm>
#include <cstring>

namespace trainopt {
namespace {

class Done : public Exchange {
 public:
  void wait() override {}
};

class SingleCommunicator : public Communicator {
 public:
  const RankPosition& position() const override { return position_; }
  std::unique_ptr<Exchange> all_reduce(at::Tensor) override { return std::make_unique<Done>(); }
  std::unique_ptr<Exchange> reduce_scatter(at::Tensor mine, at::Tensor all) override { return copied(mine, all); }
  std::unique_ptr<Exchange> all_gather(at::Tensor all, at::Tensor mine) override { return copied(all, mine); }
  std::unique_ptr<Exchange> broadcast(at::Tensor, int64_t root) override {
    TRAINOPT_CHECK(root == 0);
    return std::make_unique<Done>();
  }
  std::unique_ptr<Exchange> send(at::Tensor, int64_t) override { throw BrokenInvariant("there is no other rank"); }
  std::unique_ptr<Exchange> receive(at::Tensor, int64_t) override { throw BrokenInvariant("there is no other rank"); }
  std::unique_ptr<Communicator> among(const std::vector<int64_t>&) override { return make_single_communicator(); }
  std::vector<double> gather(std::span<const double> mine) override { return {mine.begin(), mine.end()}; }
  Traffic take_traffic() override { return {}; }

 private:
  static std::unique_ptr<Exchange> copied(at::Tensor& to, const at::Tensor& from) {
    if (!to.is_same(from) && to.data_ptr() != from.data_ptr()) to.view(-1).copy_(from.view(-1));
    return std::make_unique<Done>();
  }

  RankPosition position_;
};

}  // namespace

double wire_bytes(Collective collective, int64_t bytes, int64_t ranks) {
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks), all = static_cast<double>(bytes);
  switch (collective) {
    case Collective::all_reduce:
      return 2 * share * all;
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return share * all;
    case Collective::broadcast:
      return ranks > 1 ? all : 0;
    case Collective::send:
      return all;
  }
  TRAINOPT_CHECK(false);
  return 0;
}

double Traffic::wire_bytes(int64_t ranks) const {
  double sum = 0;
  for (size_t i = 0; i < kCollectiveCount; ++i)
    sum += trainopt::wire_bytes(static_cast<Collective>(i), bytes[i], ranks);
  return sum;
}

std::vector<std::string> gather_texts(Communicator& communicator, std::string_view mine) {
  const std::vector<double> lengths = communicator.gather(std::array{static_cast<double>(mine.size())});
  const auto longest = static_cast<size_t>(*std::max_element(lengths.begin(), lengths.end()));
  // The communicator copies bits, so its numbers can carry eight characters each.
  const size_t words = (longest + sizeof(double) - 1) / sizeof(double);
  std::vector<std::string> texts;
  if (words == 0) return std::vector<std::string>(lengths.size());
  std::vector<double> packed(words);
  std::memcpy(packed.data(), mine.data(), mine.size());
  const std::vector<double> all = communicator.gather(packed);
  for (size_t rank = 0; rank < lengths.size(); ++rank)
    texts.emplace_back(reinterpret_cast<const char*>(all.data() + rank * words), static_cast<size_t>(lengths[rank]));
  return texts;
}

RankPosition position_among(const std::vector<int64_t>& ranks, const RankPosition& position) {
  const auto found = std::find(ranks.begin(), ranks.end(), position.rank);
  TRAINOPT_CHECK(found != ranks.end());
  const auto is_here = [&](int64_t rank) {
    return rank / position.local_ranks == position.rank / position.local_ranks;
  };
  return {.rank = found - ranks.begin(),
          .ranks = std::ssize(ranks),
          .local_rank = std::count_if(ranks.begin(), found, is_here),
          .local_ranks = std::count_if(ranks.begin(), ranks.end(), is_here)};
}

std::unique_ptr<Communicator> make_single_communicator() { return std::make_unique<SingleCommunicator>(); }

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

namespace {

class HeldMemory : public Exchange {
 public:
  explicit HeldMemory(at::Tensor memory = {}) : memory_(std::move(memory)) {}
  void wait() override {}

 private:
  at::Tensor memory_;
};

class ShapedCommunicator : public Communicator {
 public:
  ShapedCommunicator(const RankPosition& position, c10::Device device) : position_(position), device_(device) {}

  const RankPosition& position() const override { return position_; }
  std::unique_ptr<Exchange> all_reduce(at::Tensor) override { return std::make_unique<HeldMemory>(); }
  std::unique_ptr<Exchange> broadcast(at::Tensor, int64_t) override { return std::make_unique<HeldMemory>(); }
  std::unique_ptr<Exchange> all_gather(at::Tensor, at::Tensor) override { return std::make_unique<HeldMemory>(); }
  /// On a CPU every rank's part is received before it is added (c10d_communicator.cpp); NCCL adds as parts arrive.
  std::unique_ptr<Exchange> reduce_scatter(at::Tensor, at::Tensor all) override {
    return std::make_unique<HeldMemory>(device_.is_cpu() ? at::empty_like(all) : at::Tensor());
  }
  std::unique_ptr<Exchange> send(at::Tensor data, int64_t) override { return std::make_unique<HeldMemory>(data); }
  std::unique_ptr<Exchange> receive(at::Tensor, int64_t) override { return std::make_unique<HeldMemory>(); }
  std::unique_ptr<Communicator> among(const std::vector<int64_t>& ranks) override {
    return make_shaped_communicator(position_among(ranks, position_), device_);
  }
  std::vector<double> gather(std::span<const double> mine) override {
    std::vector<double> all;
    for (int64_t rank = 0; rank < position_.ranks; ++rank) all.insert(all.end(), mine.begin(), mine.end());
    return all;
  }
  Traffic take_traffic() override { return {}; }

 private:
  RankPosition position_;
  c10::Device device_;
};

}  // namespace

std::unique_ptr<Communicator> make_shaped_communicator(const RankPosition& position, c10::Device device) {
  return std::make_unique<ShapedCommunicator>(position, device);
}

}  // namespace trainopt
