// Tests what does not depend on the number of ranks, with one NCCL rank. Values are integers, so results are compared
// exactly.
#include "comm/c10d_communicator.h"
#include "comm/process_groups.h"
#include "device/device.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/hash_store.h"

using namespace trainopt;

TEST_CASE("NCCL runs every collective and records how long its stream waited") {
  const c10::Device gpu(at::kCUDA, 0);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto data = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
  data->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::NCCL, make_nccl(store, 0, 1, 60));
  data->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
  C10dCommunicator one({.rank = 0, .ranks = 1, .local_rank = 0, .local_ranks = 1}, data,
                       make_gloo(c10::make_intrusive<c10d::PrefixStore>("host", store), 0, 1, "127.0.0.1", 60), {});

  const at::Tensor numbers = at::arange(1 << 16, at::TensorOptions(gpu).dtype(at::kFloat));
  at::Tensor summed = numbers.clone(), part = at::empty_like(numbers), all = at::empty_like(numbers),
             sent = numbers.to(at::kBFloat16);
  one.all_reduce(summed)->wait();
  one.reduce_scatter(part, numbers.clone())->wait();
  one.all_gather(all, numbers)->wait();
  one.broadcast(sent, 0)->wait();
  CHECK(summed.equal(numbers));
  CHECK(part.equal(numbers));
  CHECK(all.equal(numbers));
  CHECK(sent.equal(numbers.to(at::kBFloat16)));
  CHECK(one.gather(std::array{1.0, 2.0}) == std::vector<double>{1, 2});

  const Traffic traffic = one.take_traffic();
  CHECK(traffic.calls == std::array<int64_t, kCollectiveCount>{1, 1, 1, 1});
  CHECK(traffic.bytes[0] == 4 << 16);
  REQUIRE(traffic.stalls.size() == 4);
  synchronize(gpu);
  for (const auto& stall : traffic.stalls) CHECK(elapsed_ms(stall->start, stall->end) >= 0);
}
