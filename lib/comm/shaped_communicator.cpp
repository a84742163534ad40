#include "comm/shaped_communicator.h"

#include "device/tensor.h"

namespace trainopt {
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
