#include "comm/c10d_communicator.h"

#include "base/clock.h"
#include "comm/lost_rank.h"

#include <ATen/ATen.h>

namespace trainopt {
namespace {

bool sums_parts_itself(const at::Tensor& tensor) { return tensor.is_cpu(); }   // Gloo's own reduce-scatter is an all-reduce inside

void require_parts(const at::Tensor& all, const at::Tensor& mine, int64_t ranks) {
  TRAINOPT_CHECK(all.is_contiguous() && mine.is_contiguous() && all.scalar_type() == mine.scalar_type());
  TRAINOPT_CHECK_EQUAL(all.numel(), mine.numel() * ranks);
}

}  // namespace

/// c10d's own handle. What it throws, and what it throws where the exchange is only begun, says that a rank is gone.
class C10dCommunicator::Working : public Exchange {
 public:
  Working(c10::intrusive_ptr<c10d::Work> work, c10::Device device, Traffic& traffic) : work_(std::move(work)), device_(device), traffic_(traffic) {}
  void wait() override {
    if (!device_.is_cpu()) {   // the stream waits, not this thread
      auto stall = std::make_shared<EventSpan>(device_);
      stall->start.record(Stream::current(device_));
      or_lost_rank([&] { work_->wait(); });
      stall->end.record(Stream::current(device_));
      traffic_.stalls.push_back(std::move(stall));
      return;
    }
    const auto began = Clock::now();
    or_lost_rank([&] { work_->wait(); });
    traffic_.waited_ms += milliseconds_between(began, Clock::now());
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  c10::Device device_;
  Traffic& traffic_;
};

/// Each rank sends every other one its part, directly, and adds what it gets in the ranks' order: half the bytes of an all-reduce, one
/// round whatever the number of ranks, and sums that do not depend on when things arrive.
class C10dCommunicator::SummedParts : public Exchange {
 public:
  SummedParts(std::unique_ptr<Exchange> parts, at::Tensor received, at::Tensor all, at::Tensor mine)
      : parts_(std::move(parts)), received_(std::move(received)), all_(std::move(all)), mine_(std::move(mine)) {}
  void wait() override {
    parts_->wait();
    const at::NoGradGuard no_grad;
    at::Tensor flat = mine_.view(-1);
    at::sum_out(flat, received_, {0});
  }

 private:
  std::unique_ptr<Exchange> parts_;
  at::Tensor received_, all_, mine_;
};

C10dCommunicator::C10dCommunicator(const RankPlace& place, c10::intrusive_ptr<c10d::ProcessGroup> data, c10::intrusive_ptr<c10d::Backend> host)
    : place_(place), data_(std::move(data)), host_(std::move(host)) {}

C10dCommunicator::~C10dCommunicator() = default;

void C10dCommunicator::count(Collective collective, const at::Tensor& whole) {
  const auto at = static_cast<size_t>(collective);
  traffic_.bytes[at] += static_cast<int64_t>(whole.nbytes());
  ++traffic_.calls[at];
}

std::unique_ptr<Exchange> C10dCommunicator::begin(Collective collective, const at::Tensor& whole, c10::intrusive_ptr<c10d::Work> work) {
  count(collective, whole);
  return std::make_unique<Working>(std::move(work), whole.device(), traffic_);
}

std::unique_ptr<Exchange> C10dCommunicator::all_reduce(at::Tensor data) {
  std::vector<at::Tensor> tensors{data};
  return begin(Collective::all_reduce, data, or_lost_rank([&] { return data_->getDefaultBackend()->allreduce(tensors, {}); }));
}

std::unique_ptr<Exchange> C10dCommunicator::reduce_scatter(at::Tensor mine, at::Tensor all) {
  require_parts(all, mine, ranks());
  at::Tensor flat = all.view(-1);
  if (!sums_parts_itself(all)) {
    at::Tensor out = mine.view(-1);
    return begin(Collective::reduce_scatter, all, or_lost_rank([&] { return data_->getDefaultBackend()->_reduce_scatter_base(out, flat, {}); }));
  }
  at::Tensor received = at::empty({ranks(), mine.numel()}, mine.options());
  at::Tensor parts = received.view(-1);
  std::vector<int64_t> equal;
  auto work = or_lost_rank([&] { return data_->getDefaultBackend()->alltoall_base(parts, flat, equal, equal, {}); });
  return std::make_unique<SummedParts>(begin(Collective::reduce_scatter, all, std::move(work)), received, all, mine);
}

std::unique_ptr<Exchange> C10dCommunicator::all_gather(at::Tensor all, at::Tensor mine) {
  require_parts(all, mine, ranks());
  at::Tensor out = all.view(-1), in = mine.view(-1);
  return begin(Collective::all_gather, all, or_lost_rank([&] { return data_->getDefaultBackend()->_allgather_base(out, in, {}); }));
}

std::unique_ptr<Exchange> C10dCommunicator::broadcast(at::Tensor data, int64_t root) {
  std::vector<at::Tensor> tensors{data};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return begin(Collective::broadcast, data, or_lost_rank([&] { return data_->getDefaultBackend()->broadcast(tensors, options); }));
}

std::vector<double> C10dCommunicator::gather(std::span<const double> mine) {
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<double> all(mine.size() * static_cast<size_t>(ranks()));
  at::Tensor in = at::empty({size}, at::kDouble), out = at::from_blob(all.data(), {size * ranks()}, at::kDouble);
  std::copy(mine.begin(), mine.end(), in.mutable_data_ptr<double>());
  or_lost_rank([&] { host_->_allgather_base(out, in, {})->wait(); });
  return all;
}

}  // namespace trainopt
