// Checksums that every change alters, and what is said about the rank that differs. Ranks are threads.
#include "train/ranks.h"

#include "base/error.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/ranks.h"

#include <bit>
#include <cstring>
#include <limits>

using namespace trainopt;
using Catch::Matchers::Contains;

namespace {

uint64_t value_of(const at::Tensor& sum) { return static_cast<uint64_t>(sum.item<int64_t>()); }

/// The definition, over the bytes of `tensor` read as integers of type Integer.
template <class Integer>
uint64_t by_definition(const at::Tensor& tensor) {
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  uint64_t sum = 0;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    Integer x;
    std::memcpy(&x, bytes + i * static_cast<int64_t>(sizeof x), sizeof x);
    sum += (2 * static_cast<uint64_t>(i) + 1) * static_cast<uint64_t>(static_cast<int64_t>(x));
  }
  return sum;
}

at::Tensor numbers(int64_t count) { return at::linspace(-3, 7, count, at::kFloat); }

/// Runs one comparison on each rank, after `spoil` has changed the rank's tensors; returns rank 0's message and its
/// code. Every rank must get the same message.
std::pair<std::string, ExitCode> compared(int64_t ranks,
                                          const std::function<void(int64_t rank, NamedTensors& tensors)>& spoil) {
  std::vector<std::string> messages(static_cast<size_t>(ranks), "equal");
  ExitCode code = ExitCode::done;
  as_ranks(ranks, [&](Job&, Communicator& communicator) {
    NamedTensors tensors{
        {"first", numbers(1000)}, {"second", numbers(70).view({7, 10}).clone()}, {"third", numbers(5)}};
    ReplicaCheck check(communicator, 2);
    check.compare(tensors, 4);
    spoil(communicator.rank(), tensors);
    try {
      check.compare(tensors, 6);
    } catch (const UserError& error) {
      messages[static_cast<size_t>(communicator.rank())] = error.what();
      if (communicator.rank() == 0) code = error.code();
    }
  });
  for (const auto& message : messages) CHECK(message == messages.front());
  return {messages.front(), code};
}

void flip(const at::Tensor& tensor, int64_t element, int bit) {
  auto* bits = static_cast<uint32_t*>(tensor.mutable_data_ptr());
  bits[element] ^= 1U << bit;
}

}  // namespace

TEST_CASE("a checksum is the weighted sum of the bits, for every type and size") {
  CHECK(value_of(checksum(at::tensor({1.0F}))) == 0x3f800000);
  CHECK(value_of(checksum(at::tensor({1.0F, 1.0F}))) == 4ULL * 0x3f800000);
  CHECK(value_of(checksum(at::tensor({-0.0F}))) != value_of(checksum(at::tensor({0.0F}))));
  const int64_t several_pieces = (1 << 22) + 5;
  for (const int64_t count : {int64_t{1}, int64_t{1000}, several_pieces}) {
    const at::Tensor tensor = numbers(count);
    CHECK(value_of(checksum(tensor)) == by_definition<int32_t>(tensor));
    CHECK(value_of(checksum(tensor.to(at::kDouble))) == by_definition<int64_t>(tensor.to(at::kDouble)));
    CHECK(value_of(checksum(tensor.to(at::kBFloat16))) == by_definition<int16_t>(tensor.to(at::kBFloat16)));
  }
  const at::Tensor filters = numbers(2 * 3 * 4 * 4).view({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  CHECK(value_of(checksum(filters)) == by_definition<int32_t>(filters));
  const at::Tensor view = numbers(100).narrow(0, 30, 40);
  CHECK(value_of(checksum(view)) == by_definition<int32_t>(view.clone()));
}

TEST_CASE("a checksum does not depend on the number of threads") {
  const at::Tensor tensor = numbers(1 << 20);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const uint64_t alone = value_of(checksum(tensor));
  at::set_num_threads(3);
  CHECK(value_of(checksum(tensor)) == alone);
  at::set_num_threads(threads);
}

TEST_CASE("a checksum changes with any bit, and with any exchange of two elements") {
  const at::Tensor tensor = numbers(300);
  const uint64_t before = value_of(checksum(tensor));
  for (int64_t element = 0; element < 300; element += 13)
    for (int bit = 0; bit < 32; ++bit) {
      const at::Tensor changed = tensor.clone();
      flip(changed, element, bit);
      CHECK(value_of(checksum(changed)) != before);
    }
  for (int64_t one = 0; one < 300; one += 7)
    for (int64_t other = one + 1; other < 300; other += 11) {
      const at::Tensor changed = tensor.clone();
      auto* values = changed.mutable_data_ptr<float>();
      std::swap(values[one], values[other]);
      CHECK(value_of(checksum(changed)) != before);
    }
}

TEST_CASE("the majority shows which rank differs") {
  const auto [message, code] = compared(3, [](int64_t rank, NamedTensors& tensors) {
    if (rank == 1) flip(tensors[1].second, 42, 3), flip(tensors[2].second, 0, 0);
  });
  CHECK(code == ExitCode::hardware);
  CHECK_THAT(message, Contains("suspected hardware fault: the weights of rank 1 differ from those of the other 2 after "
                               "step 6; without the faulty machine, resume from a checkpoint of step 4 or before"));
  CHECK_THAT(message, Contains("first difference in second, checksums ranks 0, 2 ") && Contains("; rank 1 "));
}

TEST_CASE("without a majority all values are shown") {
  const auto [two, code] = compared(2, [](int64_t rank, NamedTensors& tensors) {
    if (rank == 0) flip(tensors[0].second, 999, 31);
  });
  CHECK(code == ExitCode::hardware);
  CHECK_THAT(two, Contains("the weights of 2 ranks differ after step 6, and no majority shows which are right"));
  CHECK_THAT(two, Contains("first difference in first, checksums rank 0 ") && Contains("; rank 1 "));
  const auto four = compared(4, [](int64_t rank, NamedTensors& tensors) {
    if (rank % 2 == 1) flip(tensors[0].second, 1, 1);
  });
  CHECK_THAT(four.first, Contains("checksums ranks 0, 2 ") && Contains("; ranks 1, 3 "));
}

TEST_CASE("copies that are equal pass, and all ranks get the same message") {
  CHECK(compared(3, [](int64_t, NamedTensors&) {}).first == "equal");
  // The same change everywhere is no difference.
  CHECK(compared(2, [](int64_t, NamedTensors& tensors) { flip(tensors[0].second, 5, 5); }).first == "equal");
}

TEST_CASE("weights that are non-finite on all ranks are no hardware fault") {
  const auto spoil = [](bool everywhere) {
    return [everywhere](int64_t rank, NamedTensors& tensors) {
      const auto nan = std::bit_cast<float>(0x7fc00000U + static_cast<uint32_t>(rank));
      if (everywhere || rank == 1) tensors[0].second.mutable_data_ptr<float>()[3] = nan;
    };
  };
  const auto [everywhere, diverged] = compared(3, spoil(true));
  CHECK(diverged == ExitCode::diverged);
  CHECK_THAT(everywhere, Contains("the weights are non-finite after step 6") && Contains(": first"));
  const auto [one, hardware] = compared(3, spoil(false));
  CHECK(hardware == ExitCode::hardware);
  CHECK_THAT(one, Contains("the weights of rank 1 differ"));
}

TEST_CASE("replicas are compared every n-th step, and never on one rank") {
  const auto single = make_single_communicator();
  CHECK_FALSE(ReplicaCheck(*single, 1).due(1));
  as_ranks(2, [&](Job&, Communicator& communicator) {
    const ReplicaCheck third(communicator, 3), never(communicator, 0);
    CHECK((third.due(3) && third.due(6) && !third.due(4) && !never.due(3)));
  });
}
