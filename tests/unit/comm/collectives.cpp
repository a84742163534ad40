// All values are whole numbers, so results are compared exactly. Ranks are threads.
#include "comm/communicator.h"
#include "comm/gradient_reducer.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/ranks.h"

#include <array>
#include <cmath>

using namespace trainopt;

namespace {

/// [rank·1000 + 0, rank·1000 + 1, …]
at::Tensor numbers(int64_t rank, int64_t count, at::ScalarType type = at::kFloat) {
  return (at::arange(count, at::kFloat) + 1000.0 * static_cast<double>(rank)).to(type);
}

at::Tensor sum_of_numbers(int64_t ranks, int64_t count) {
  at::Tensor sum = numbers(0, count);
  for (int64_t rank = 1; rank < ranks; ++rank) sum = sum + numbers(rank, count);
  return sum;
}

void require_equal(const at::Tensor& got, const at::Tensor& wanted) {
  // Throws because Catch2's assertions must stay on one thread.
  if (!at::equal(got, wanted)) throw std::runtime_error("the tensors differ");
}
void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace

TEST_CASE("collectives return the correct values on every rank") {
  const int64_t ranks = GENERATE(1, 2, 3, 4);
  const int64_t part = GENERATE(1, 7, 4096);
  as_ranks(ranks, [&](Job&, Communicator& communicator) {
    const int64_t rank = communicator.rank(), total = ranks * part;
    require(communicator.ranks() == ranks, "ranks");
    at::Tensor data = numbers(rank, total);
    communicator.all_reduce(data)->wait();
    require_equal(data, sum_of_numbers(ranks, total));

    at::Tensor mine = at::empty({part});
    communicator.reduce_scatter(mine, numbers(rank, total))->wait();
    require_equal(mine, sum_of_numbers(ranks, total).narrow(0, rank * part, part));

    at::Tensor all = at::zeros({total});
    communicator.all_gather(all, numbers(rank, part))->wait();
    for (int64_t other = 0; other < ranks; ++other)
      require_equal(all.narrow(0, other * part, part), numbers(other, part));

    at::Tensor in_place = at::full({total}, -1.0);
    in_place.narrow(0, rank * part, part).copy_(numbers(rank, part));
    communicator.all_gather(in_place, in_place.narrow(0, rank * part, part))->wait();
    require_equal(in_place, all);

    at::Tensor given = numbers(rank, part);
    communicator.broadcast(given, ranks - 1)->wait();
    require_equal(given, numbers(ranks - 1, part));

    const std::vector<double> mine_on_host{static_cast<double>(rank), 0.1};
    const auto gathered = communicator.gather(mine_on_host);
    for (int64_t other = 0; other < ranks; ++other) {
      require(gathered[static_cast<size_t>(2 * other)] == static_cast<double>(other), "gathered rank");
      require(gathered[static_cast<size_t>(2 * other + 1)] == 0.1, "gathered double");
    }
  });
}

TEST_CASE("messages arrive in the order in which they were sent, several at a time, in every type") {
  const int64_t ranks = GENERATE(2, 3);
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kLong);
  constexpr int64_t kMessages = 5;
  as_ranks(ranks, [&](Job&, Communicator& communicator) {
    const int64_t rank = communicator.rank(), to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    const auto message = [&](int64_t sender, int64_t i) { return (numbers(sender, 7 + i) + i).to(type); };
    std::vector<std::unique_ptr<Exchange>> exchanges;
    std::vector<at::Tensor> sent, received;
    for (int64_t i = 0; i < kMessages; ++i) {
      sent.push_back(message(rank, i));
      received.push_back(at::zeros({7 + i}, type));
      exchanges.push_back(communicator.send(sent.back(), to));
      exchanges.push_back(communicator.receive(received.back(), from));
    }
    for (const auto& exchange : exchanges) exchange->wait();
    for (int64_t i = 0; i < kMessages; ++i) require_equal(received[static_cast<size_t>(i)], message(from, i));
  });
}

TEST_CASE("free exchanges need no other rank and leave no value undefined") {
  const int64_t rank = GENERATE(0, 1, 2);
  const auto communicator = make_free_communicator({.rank = rank, .ranks = 3});
  CHECK(communicator->rank() == rank);
  CHECK(communicator->ranks() == 3);
  const at::Tensor data = numbers(rank, 6), mine = at::full({2}, std::nan("")), all = at::full({6}, std::nan(""));
  communicator->all_reduce(data)->wait();
  communicator->broadcast(data, 1)->wait();
  CHECK(at::equal(data, numbers(rank, 6)));
  communicator->reduce_scatter(mine, data)->wait();
  CHECK(at::equal(mine, data.narrow(0, 2 * rank, 2)));
  communicator->all_gather(all, mine)->wait();
  CHECK(at::equal(all, mine.repeat({3})));
  communicator->all_gather(data, data.narrow(0, 2 * rank, 2))->wait();  // in place: the others' parts are defined
  CHECK(at::equal(data, numbers(rank, 6)));
  CHECK(communicator->gather(std::array{1.5, 2.5}) == std::vector{1.5, 2.5, 1.5, 2.5, 1.5, 2.5});
  CHECK(communicator->take_traffic().bytes == Traffic().bytes);
}

TEST_CASE("several exchanges can be in flight at once") {
  as_ranks(3, [](Job&, Communicator& communicator) {
    constexpr int64_t kPart = 1000;
    std::vector<at::Tensor> reduced, mine;
    std::vector<std::unique_ptr<Exchange>> flying;
    for (int64_t i = 0; i < 8; ++i) {
      reduced.push_back(numbers(communicator.rank() + i, 3 * kPart));
      flying.push_back(communicator.all_reduce(reduced.back()));
      mine.push_back(at::empty({kPart}));
      flying.push_back(communicator.reduce_scatter(mine.back(), numbers(communicator.rank() + i, 3 * kPart)));
    }
    for (auto& exchange : flying) exchange->wait();
    for (int64_t i = 0; i < 8; ++i) {
      const at::Tensor wanted = sum_of_numbers(3, 3 * kPart) + 3000.0 * static_cast<double>(i);
      require_equal(reduced[static_cast<size_t>(i)], wanted);
      require_equal(mine[static_cast<size_t>(i)], wanted.narrow(0, communicator.rank() * kPart, kPart));
    }
  });
}

TEST_CASE("some of the ranks have a communicator of their own, which knows their machines and counts their traffic") {
  const auto work = [](Job&, Communicator& job) {
    const int64_t rank = job.rank(), first = rank / 2 * 2;
    const auto inside = job.among({first, first + 1}), across = job.among({rank % 2, rank % 2 + 2});
    require(inside->position() == RankPosition{rank % 2, 2, rank % 2, 2}, "inside a machine");
    require(across->position() == RankPosition{rank / 2, 2, 0, 1}, "across machines");
    at::Tensor of_machine = numbers(rank, 5), of_both = numbers(rank, 5);
    inside->all_reduce(of_machine)->wait();
    across->all_reduce(of_both)->wait();
    require_equal(of_machine, numbers(first, 5) + numbers(first + 1, 5));
    require_equal(of_both, numbers(rank % 2, 5) + numbers(rank % 2 + 2, 5));
    require(inside->take_traffic().wire_bytes(2) == 20, "one all-reduce of 20 bytes");
    require(job.take_traffic().bytes == Traffic().bytes, "not counted twice");
    require(job.among({rank})->ranks() == 1, "alone");
  };
  as_ranks(4, work, 60, /*machines=*/2);
}

TEST_CASE("traffic counts full tensor sizes, and wire_bytes() applies the formulas to them") {
  as_ranks(4, [](Job&, Communicator& communicator) {
    communicator.all_reduce(at::ones({1000}))->wait();
    communicator.reduce_scatter(at::empty({10}), at::ones({40}))->wait();
    const Traffic traffic = communicator.take_traffic();
    require(traffic.bytes[static_cast<size_t>(Collective::all_reduce)] == 4000 &&
                traffic.calls[static_cast<size_t>(Collective::all_reduce)] == 1,
            "all_reduce");
    require(traffic.bytes[static_cast<size_t>(Collective::reduce_scatter)] == 160, "reduce_scatter");
    require(traffic.wire_bytes(4) == 2 * 0.75 * 4000 + 0.75 * 160, "on the wire");
    require(communicator.take_traffic().bytes == Traffic().bytes, "taken");
  });
  CHECK(wire_bytes(Collective::all_reduce, 100, 1) == 0);
  CHECK(wire_bytes(Collective::all_gather, 100, 2) == 50);
  CHECK(wire_bytes(Collective::broadcast, 100, 8) == 100);
}

namespace {

/// Two layers; each rank has its own input, so gradients differ between ranks.
struct Layers {
  explicit Layers(int64_t rank) {
    for (auto& each : parameters) each.set_requires_grad(true);
    input = numbers(rank, 8).view({2, 4});
  }
  at::Tensor loss() const { return input.matmul(parameters[0]).matmul(parameters[1]).sum(); }
  std::vector<at::Tensor> parameters{at::arange(12, at::kFloat).view({4, 3}), at::ones({3, 2})};
  at::Tensor input;
};

std::vector<at::Tensor> gradients_of(const Layers& layers) {
  std::vector<at::Tensor> all;
  for (const auto& each : layers.parameters) all.push_back(each.grad().clone());
  return all;
}

}  // namespace

TEST_CASE("the reducer leaves the sum over all ranks in every gradient") {
  const bool overlap = GENERATE(true, false);
  const int64_t bucket_bytes = GENERATE(1, 1 << 20);
  const int64_t ranks = GENERATE(2, 3);
  std::vector<at::Tensor> wanted;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Layers layers(rank);
    layers.loss().backward();
    const auto each = gradients_of(layers);
    if (wanted.empty())
      wanted = each;
    else
      for (size_t i = 0; i < each.size(); ++i) wanted[i] = wanted[i] + each[i];
  }
  as_ranks(ranks, [&](Job&, Communicator& communicator) {
    const Layers layers(communicator.rank());
    GradientReducer reducer(communicator, layers.parameters,
                            {.bucket_bytes = bucket_bytes, .overlap = overlap, .wire_type = std::nullopt});
    for (int step = 0; step < 3; ++step) {  // buckets are rebuilt after the first step
      for (const auto& each : layers.parameters)
        if (each.grad().defined()) each.mutable_grad().zero_();
      reducer.prepare();
      layers.loss().backward();
      for (size_t i = 0; i < wanted.size(); ++i) require_equal(layers.parameters[i].grad(), wanted[i]);
    }
    // Without prepare() gradients only accumulate locally; the next exchange sums what has accumulated.
    for (const auto& each : layers.parameters) each.mutable_grad().zero_();
    communicator.take_traffic();
    layers.loss().backward();
    require(communicator.take_traffic().calls == Traffic().calls, "nothing is sent");
    reducer.prepare();
    layers.loss().backward();
    for (size_t i = 0; i < wanted.size(); ++i) require_equal(layers.parameters[i].grad(), 2 * wanted[i]);
    require(communicator.take_traffic().bytes[0] == 4 * (12 + 6), "every gradient once");
  });
}

TEST_CASE("texts of any length and bytes are gathered from every rank") {
  const std::vector<std::string> texts{std::string(), std::string(3, '\0'), std::string(1000, '\xff')};
  for (const size_t shift : {0u, 1u, 2u})
    as_ranks(3, [&](Job&, Communicator& communicator) {
      const auto of = [&](int64_t rank) { return texts[(static_cast<size_t>(rank) + shift) % 3]; };
      const auto all = gather_texts(communicator, of(communicator.rank()));
      require(all.size() == 3, "one text from each rank");
      for (int64_t rank = 0; rank < 3; ++rank) require(all[static_cast<size_t>(rank)] == of(rank), "the rank's text");
      require(gather_texts(communicator, "") == std::vector<std::string>(3), "no text at all");
    });
}

TEST_CASE("exchanging gradients as bfloat16 rounds them and halves the bytes") {
  as_ranks(2, [](Job&, Communicator& communicator) {
    const Layers layers(communicator.rank());
    GradientReducer reducer(communicator, layers.parameters, {.wire_type = at::kBFloat16});
    reducer.prepare();
    layers.loss().backward();
    require(communicator.take_traffic().bytes[0] == 2 * (12 + 6), "half the bytes");
    at::Tensor wanted = at::zeros({3, 2}, at::kBFloat16);
    for (int64_t rank = 0; rank < 2; ++rank) {
      const Layers each(rank);
      each.loss().backward();
      wanted = wanted + each.parameters[1].grad().to(at::kBFloat16);
    }
    require_equal(layers.parameters[1].grad(), wanted.to(at::kFloat));
  });
}
