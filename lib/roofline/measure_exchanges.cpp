#include "roofline/measure_exchanges.h"

#include "base/units.h"
#include "device/device.h"
#include "device/stream.h"
#include "device/tensor.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace trainopt {
namespace {

constexpr int kExchangeMeasurements = 5;
constexpr double kSecondsEach = 0.05;  // duration of each measurement

class Exchanges {
 public:
  Exchanges(Communicator& communicator, c10::Device device) : communicator_(communicator), device_(device) {}

  ExchangePeak measure(Collective collective, int64_t bytes) {
    prepare(bytes);
    run(collective);
    const double once = slowest(seconds_of(collective, 1));
    const auto times = std::clamp<int64_t>(static_cast<int64_t>(kSecondsEach / std::max(once, 1e-9)), 1, 1000);
    double shortest = once;
    for (int i = 0; i < kExchangeMeasurements; ++i)
      shortest = std::min(shortest, slowest(seconds_of(collective, times)) / static_cast<double>(times));
    return {.collective = std::string(kCollectiveNames[static_cast<size_t>(collective)]),
            .bytes = bytes,
            .seconds = shortest,
            .sent_bytes_per_s = wire_bytes(collective, bytes, communicator_.ranks()) / shortest};
  }

 private:
  void prepare(int64_t bytes) {
    const auto options = at::TensorOptions(device_).dtype(at::kFloat);
    const int64_t values = bytes / 4;
    all_ = at::zeros({values}, options);
    mine_ = at::zeros({values / communicator_.ranks()}, options);
    received_ = at::zeros({values}, options);
  }

  void run(Collective collective) {
    switch (collective) {
      case Collective::all_reduce:
        return communicator_.all_reduce(all_)->wait();
      case Collective::reduce_scatter:
        return communicator_.reduce_scatter(mine_, all_)->wait();
      case Collective::all_gather:
        return communicator_.all_gather(all_, mine_)->wait();
      case Collective::broadcast:
        return communicator_.broadcast(all_, 0)->wait();
      case Collective::send:
        return send_along();
    }
  }

  /// Each rank sends to the next one, all but the last.
  void send_along() {
    std::unique_ptr<Exchange> sent, received;
    if (communicator_.rank() > 0) received = communicator_.receive(received_, communicator_.rank() - 1);
    if (communicator_.rank() + 1 < communicator_.ranks()) sent = communicator_.send(all_, communicator_.rank() + 1);
    if (sent) sent->wait();
    if (received) received->wait();
  }

  double seconds_of(Collective collective, int64_t times) {
    communicator_.gather(std::array{0.0});  // all begin together
    EventSpan span(device_);
    const Stream stream = Stream::current(device_);
    span.start.record(stream);
    for (int64_t i = 0; i < times; ++i) run(collective);
    span.end.record(stream);
    span.end.synchronize();
    return elapsed_ms(span.start, span.end) / 1e3;
  }

  double slowest(double mine) {
    const std::vector<double> all = communicator_.gather(std::array{mine});
    return *std::max_element(all.begin(), all.end());
  }

  Communicator& communicator_;
  c10::Device device_;
  at::Tensor all_, mine_, received_;
};

}  // namespace

std::vector<ExchangePeak> measure_exchanges(Communicator& communicator, c10::Device device) {
  std::vector<ExchangePeak> peaks;
  if (communicator.ranks() == 1) return peaks;
  Exchanges exchanges(communicator, device);
  const int64_t values = std::lcm(int64_t{1024}, communicator.ranks());  // 4 KiB that all ranks can share equally
  for (const auto collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                Collective::broadcast, Collective::send})
    for (int64_t bytes = 4 * values; bytes <= (4 * values) << 12; bytes *= 16) {
      peaks.push_back(exchanges.measure(collective, bytes));
    }
  communicator.take_traffic();
  return peaks;
}

std::string exchange_job(const std::string& backend, const RankPosition& position) {
  return fmt::format("{}, {} on {}", backend, counted(position.ranks, "rank"),
                     counted(position.ranks / std::max<int64_t>(1, position.local_ranks), "machine"));
}

}  // namespace trainopt
