#include "comm/c10d_communicator.h"

#include "base/clock.h"
#include "comm/communicator.h"
#include "device/tensor.h"
#include "device/trace_range.h"

#include <fmt/ranges.h>

#include <functional>

namespace trainopt {
namespace {

bool uses_direct_messages(const at::Tensor& tensor) { return tensor.is_cpu(); }

constexpr const char* kWaitLabel = "comm::wait";

constexpr int64_t kTags = 1 << 20;  // more than are ever in flight at once

void require_parts(const at::Tensor& all, const at::Tensor& mine, int64_t ranks) {
  TRAINOPT_CHECK(all.is_contiguous() && mine.is_contiguous() && all.scalar_type() == mine.scalar_type());
  TRAINOPT_CHECK_EQUAL(all.numel(), mine.numel() * ranks);
}

}  // namespace

/// An exchange carried by c10d. Any exception from c10d, at the start or in wait(), is taken to mean a lost rank.
class C10dCommunicator::PendingExchange : public Exchange {
 public:
  PendingExchange(c10::intrusive_ptr<c10d::Work> work, c10::Device device, Traffic& traffic)
      : work_(std::move(work)), device_(device), traffic_(traffic) {}
  void wait() override {
    const TraceRange range(kWaitLabel);
    if (!device_.is_cpu()) {  // the stream waits, not this thread
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

/// Sends directly between all pairs of ranks, from and into the tensors themselves; Gloo's all-gather copies the whole
/// buffer, and its reduce-scatter is an all-reduce. Each rank sends and receives n−1 messages at once, which suits the
/// few ranks used in CPU training.
class C10dCommunicator::DirectMessages : public Exchange {
 public:
  DirectMessages(std::vector<c10::intrusive_ptr<c10d::Work>> messages, std::function<void()> then, Traffic& traffic)
      : messages_(std::move(messages)), then_(std::move(then)), traffic_(traffic) {}
  void wait() override {
    const TraceRange range(kWaitLabel);
    const auto began = Clock::now();
    or_lost_rank([&] {
      for (auto& message : messages_) message->wait();
    });
    traffic_.waited_ms += milliseconds_between(began, Clock::now());
    then_();
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> messages_;
  std::function<void()> then_;
  Traffic& traffic_;
};

C10dCommunicator::C10dCommunicator(const RankPosition& position, c10::intrusive_ptr<c10d::ProcessGroup> data,
                                   c10::intrusive_ptr<c10d::Backend> host, ConnectAmong connect)
    : position_(position),
      data_(std::move(data)),
      host_(std::move(host)),
      connect_(std::move(connect)),
      sent_(static_cast<size_t>(position.ranks)),
      received_(static_cast<size_t>(position.ranks)) {}

C10dCommunicator::~C10dCommunicator() = default;

void C10dCommunicator::count(Collective collective, const at::Tensor& tensor) {
  const auto at = static_cast<size_t>(collective);
  traffic_.bytes[at] += static_cast<int64_t>(tensor.nbytes());
  ++traffic_.calls[at];
}

std::unique_ptr<Exchange> C10dCommunicator::begin(Collective collective, const at::Tensor& tensor,
                                                  c10::intrusive_ptr<c10d::Work> work) {
  count(collective, tensor);
  return std::make_unique<PendingExchange>(std::move(work), tensor.device(), traffic_);
}

std::unique_ptr<Exchange> C10dCommunicator::all_reduce(at::Tensor data) {
  const TraceRange range("comm::all_reduce");
  std::vector<at::Tensor> tensors{data};
  return begin(Collective::all_reduce, data,
               or_lost_rank([&] { return data_->getDefaultBackend()->allreduce(tensors, {}); }));
}

std::unique_ptr<Exchange> C10dCommunicator::reduce_scatter(at::Tensor mine, at::Tensor all) {
  const TraceRange range("comm::reduce_scatter");
  require_parts(all, mine, ranks());
  at::Tensor flat = all.view(-1);
  if (!uses_direct_messages(all)) {
    at::Tensor out = mine.view(-1);
    return begin(Collective::reduce_scatter, all,
                 or_lost_rank([&] { return data_->getDefaultBackend()->_reduce_scatter_base(out, flat, {}); }));
  }
  // Each rank receives the others' versions of its part and adds them in rank order, so that sums do not depend on
  // arrival order.
  const at::Tensor parts = flat.view({ranks(), -1});
  const at::Tensor received = at::empty({ranks(), mine.numel()}, mine.options());
  count(Collective::reduce_scatter, all);
  auto messages =
      messages_between([&](int64_t other) { return parts[other]; }, [&](int64_t other) { return received[other]; });
  return std::make_unique<DirectMessages>(
      std::move(messages),
      [this, parts, received, mine] {
        const at::NoGradGuard no_grad;
        const auto version = [&](int64_t rank) { return rank == position_.rank ? parts[rank] : received[rank]; };
        at::Tensor sum = mine.view(-1);
        if (ranks() == 2) {  // sum may alias this rank's part
          at::add_out(sum, version(0), version(1));
          return;
        }
        at::Tensor added = version(0).clone();
        for (int64_t rank = 1; rank < ranks(); ++rank) added.add_(version(rank));
        sum.copy_(added);
      },
      traffic_);
}

std::unique_ptr<Exchange> C10dCommunicator::all_gather(at::Tensor all, at::Tensor mine) {
  const TraceRange range("comm::all_gather");
  require_parts(all, mine, ranks());
  at::Tensor out = all.view(-1), in = mine.view(-1);
  if (!uses_direct_messages(all))
    return begin(Collective::all_gather, all,
                 or_lost_rank([&] { return data_->getDefaultBackend()->_allgather_base(out, in, {}); }));
  const at::Tensor parts = out.view({ranks(), -1});
  if (parts[position_.rank].data_ptr() != in.data_ptr()) {
    const at::NoGradGuard no_grad;
    parts[position_.rank].copy_(in);
  }
  count(Collective::all_gather, all);
  auto messages =
      messages_between([&](int64_t) { return parts[position_.rank]; }, [&](int64_t other) { return parts[other]; });
  return std::make_unique<DirectMessages>(
      std::move(messages), [all] {}, traffic_);
}

/// Posts a send to and a receive from every other rank.
std::vector<c10::intrusive_ptr<c10d::Work>> C10dCommunicator::messages_between(
    const std::function<at::Tensor(int64_t)>& outgoing, const std::function<at::Tensor(int64_t)>& incoming) {
  const int tag = static_cast<int>(exchanges_++ % kTags);
  return or_lost_rank([&] {
    std::vector<c10::intrusive_ptr<c10d::Work>> messages;
    for (int64_t i = 1; i < ranks(); ++i) {
      const int64_t to = (position_.rank + i) % ranks(), from = (position_.rank - i + ranks()) % ranks();
      std::vector<at::Tensor> into{incoming(from)}, out{outgoing(to)};
      messages.push_back(data_->getDefaultBackend()->recv(into, static_cast<int>(from), tag));
      messages.push_back(data_->getDefaultBackend()->send(out, static_cast<int>(to), tag));
    }
    return messages;
  });
}

std::unique_ptr<Exchange> C10dCommunicator::broadcast(at::Tensor data, int64_t root) {
  const TraceRange range("comm::broadcast");
  std::vector<at::Tensor> tensors{data};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return begin(Collective::broadcast, data,
               or_lost_rank([&] { return data_->getDefaultBackend()->broadcast(tensors, options); }));
}

/// The tags of such messages follow those of messages_between().
std::unique_ptr<Exchange> C10dCommunicator::send(at::Tensor data, int64_t to) {
  const TraceRange range("comm::send");
  std::vector<at::Tensor> tensors{data};
  const int tag = static_cast<int>(kTags + sent_.at(static_cast<size_t>(to))++ % kTags);
  return begin(Collective::send, data,
               or_lost_rank([&] { return data_->getDefaultBackend()->send(tensors, static_cast<int>(to), tag); }));
}

std::unique_ptr<Exchange> C10dCommunicator::receive(at::Tensor data, int64_t from) {
  const TraceRange range("comm::receive");
  std::vector<at::Tensor> tensors{data};
  const int tag = static_cast<int>(kTags + received_.at(static_cast<size_t>(from))++ % kTags);
  auto work = or_lost_rank([&] { return data_->getDefaultBackend()->recv(tensors, static_cast<int>(from), tag); });
  return std::make_unique<PendingExchange>(std::move(work), data.device(), traffic_);
}

std::unique_ptr<Communicator> C10dCommunicator::among(const std::vector<int64_t>& ranks) {
  const std::string name = fmt::format("{}/{}", groups_++, fmt::join(ranks, ","));
  if (ranks.size() == 1) return make_single_communicator();
  return connect_(name, position_among(ranks, position_));
}

std::vector<double> C10dCommunicator::gather(std::span<const double> mine) {
  const TraceRange range("comm::gather");
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<double> all(mine.size() * static_cast<size_t>(ranks()));
  at::Tensor in = at::empty({size}, at::kDouble), out = at::from_blob(all.data(), {size * ranks()}, at::kDouble);
  std::copy(mine.begin(), mine.end(), in.mutable_data_ptr<double>());
  const auto began = Clock::now();
  or_lost_rank([&] { host_->_allgather_base(out, in, {})->wait(); });
  // A GPU keeps working through its queue meanwhile, so only CPU ranks count this as waiting.
  if (data_->getBackendType() == c10d::ProcessGroup::BackendType::GLOO)
    traffic_.waited_ms += milliseconds_between(began, Clock::now());
  return all;
}

}  // namespace trainopt
