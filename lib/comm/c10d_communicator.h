// The communicator for jobs with several ranks, on c10d's process groups. Only this module uses c10d.
#pragma once

#include "comm/communicator.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <functional>

namespace trainopt {

/// A communicator that c10d's Reducer can use.
class ProcessGroupCommunicator : public Communicator {
 public:
  virtual const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const = 0;
};

/// Connects some ranks of a communicator, under a name that is theirs alone.
using ConnectAmong =
    std::function<std::unique_ptr<Communicator>(const std::string& name, const RankPosition& position)>;

class C10dCommunicator : public ProcessGroupCommunicator {
 public:
  /// `data` carries tensors, `host` (Gloo) the values of gather(). Both must contain the same ranks in the same order.
  C10dCommunicator(const RankPosition& position, c10::intrusive_ptr<c10d::ProcessGroup> data,
                   c10::intrusive_ptr<c10d::Backend> host, ConnectAmong connect);
  ~C10dCommunicator() override;

  const RankPosition& position() const override { return position_; }
  std::unique_ptr<Exchange> all_reduce(at::Tensor data) override;
  std::unique_ptr<Exchange> reduce_scatter(at::Tensor mine, at::Tensor all) override;
  std::unique_ptr<Exchange> all_gather(at::Tensor all, at::Tensor mine) override;
  std::unique_ptr<Exchange> broadcast(at::Tensor data, int64_t root) override;
  std::unique_ptr<Exchange> send(at::Tensor data, int64_t to) override;
  std::unique_ptr<Exchange> receive(at::Tensor data, int64_t from) override;
  std::unique_ptr<Communicator> among(const std::vector<int64_t>& ranks) override;
  std::vector<double> gather(std::span<const double> mine) override;
  Traffic take_traffic() override { return std::exchange(traffic_, {}); }

  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const override { return data_; }

 private:
  class PendingExchange;
  class DirectMessages;
  std::unique_ptr<Exchange> begin(Collective collective, const at::Tensor& tensor, c10::intrusive_ptr<c10d::Work> work);
  void count(Collective collective, const at::Tensor& tensor);
  std::vector<c10::intrusive_ptr<c10d::Work>> messages_between(const std::function<at::Tensor(int64_t)>& outgoing,
                                                               const std::function<at::Tensor(int64_t)>& incoming);

  RankPosition position_;
  c10::intrusive_ptr<c10d::ProcessGroup> data_;
  c10::intrusive_ptr<c10d::Backend> host_;
  Traffic traffic_;
  ConnectAmong connect_;
  int64_t exchanges_ = 0;                 ///< pairwise exchanges so far; gives each its message tag
  std::vector<int64_t> sent_, received_;  ///< by rank: messages so far
  int64_t groups_ = 0;                    ///< calls of among() so far
};

}  // namespace trainopt
