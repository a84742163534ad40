#include "comm/communicator.h"

#include "base/error.h"
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

}  // namespace trainopt
