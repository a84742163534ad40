#include "trace/device_time.h"

#include "events.h"
#include "support/catch.h"

namespace trainopt::trace {
namespace {

/// Microseconds in the order of IdleCause: exchange, copy, host, launch, unknown.
std::vector<double> idle(const RankAnalysis& rank) {
  std::vector<double> all;
  for (const int64_t ns : rank.device.value().idle_ns) all.push_back(static_cast<double>(ns) / 1000);
  return all;
}

}  // namespace

TEST_CASE("why a device was idle between kernels", "[trace]") {
  // Kernel 1 runs 100–200.
  //   gap 200–230: kernel 2 was launched at 150, before the gap: launch 30
  // Kernel 2 runs 230–300.
  //   gap 300–400: a copy 310–330 and an exchange 320–350; kernel 3 was launched at 360:
  //     exchange 320–350 = 30, copy 310–320 = 10, host 300–310 and 350–360 = 20, launch 360–400 = 40
  // Kernel 3 runs 400–450 under kernel 4, 420–500, so there is no gap; then 0.02 µs to kernel 5: back to back
  // Kernel 5 runs 500.02–510.02, then 9.98 to kernel 6, whose launch is unknown.
  // Kernel 6 runs 520–530. Span 100–530, busy 100 + 70 + 100 + 10 + 10.
  const auto rank = analysed({
      launch(1, 90, 5),
      launch(2, 150, 5),
      launch(3, 360, 5),
      launch(4, 370, 5),
      launch(5, 380, 5),
      kernel("a", 100, 100, R"("correlation": 1)"),
      kernel("a", 230, 70, R"("correlation": 2)"),
      on_device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 310, 20, R"("bytes": 4000)"),
      kernel("ncclDevKernel_AllReduce", 320, 30),
      kernel("a", 400, 50, R"("correlation": 3)"),
      kernel("b", 420, 80, R"("correlation": 4)"),
      kernel("a", 500.02, 10, R"("correlation": 5)"),
      kernel("a", 520, 10),
  });
  REQUIRE(rank.device);
  CHECK(rank.device->span_ns == 430000);
  CHECK(rank.device->busy_ns == 290000);
  CHECK(rank.device->gaps == 4);
  CHECK(idle(rank) == std::vector<double>{30, 10, 20, 70.02, 9.98});
  CHECK(rank.device->launch_bound_ns() == 90020);
}

TEST_CASE("a device without compute kernels has no span", "[trace]") {
  const auto rank = analysed({on_device("gpu_memset", "Memset", 0, 10), kernel("ncclKernel_AllReduce", 20, 10)});
  REQUIRE(rank.device);
  CHECK(rank.device->span_ns == 0);
  CHECK(analysed({operation("a", 0, 1)}).device.has_value() == false);
}

TEST_CASE("devices are measured one by one", "[trace]") {
  const auto rank = analysed({event("kernel", "a", 7, 0, 10, "", 0), event("kernel", "a", 7, 20, 10, "", 0),
                              event("kernel", "a", 7, 5, 100, "", 1)});
  CHECK(rank.device->span_ns == 30000 + 100000);
  CHECK(idle(rank) == std::vector<double>{0, 0, 0, 0, 10});
}

TEST_CASE("copies by direction", "[trace]") {
  const auto rank = analysed({
      on_device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 10, R"("bytes": 100000)"),
      on_device("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 20, 30, R"("bytes": 100000)"),
      on_device("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 60, 1, R"("bytes": 8)"),
      on_device("gpu_memset", "Memset (Device)", 70, 1, R"("bytes": 8)"),
  });
  REQUIRE(rank.device->copies.size() == 2);
  CHECK(rank.device->copies[0].direction == "DtoH");
  CHECK(rank.device->copies[1].direction == "HtoD");
  CHECK(rank.device->copies[1].calls == 2);
  CHECK(rank.device->copies[1].bytes == 200000);
  CHECK(rank.device->copies[1].ns == 40000);  // 5 GB/s
}

TEST_CASE("exchange under compute", "[trace]") {
  // On a device: NCCL 0–100 and 50–150 is 150; a kernel runs 80–120 and 140–200: 40 + 10.
  const auto device = analysed({kernel("ncclDevKernel_A", 0, 100), kernel("ncclDevKernel_B", 50, 100),
                                kernel("a", 80, 40), kernel("a", 140, 60), annotation("comm::all_reduce", 0, 500)});
  CHECK(device.exchange.ns == 150000);
  CHECK(device.exchange.under_compute_ns == 50000);
  // On CPUs: gloo's thread 10–60 and the step's own wait 50–80 are 70. The step computes 0–50; what it runs inside its
  // communication (aten::copy_) is not computing, nor is an annotation.
  const auto host =
      analysed({annotation("ProfilerStep#1", 0, 100), operation("aten::mm", 0, 50), annotation("comm::wait", 50, 30),
                operation("aten::copy_", 55, 10), annotation("gloo:all_reduce", 10, 50, kHelper),
                operation("aten::add", 0, 90, "", kHelper)});
  CHECK(host.exchange.ns == 70000);
  CHECK(host.exchange.under_compute_ns == 40000);
  CHECK(analysed({operation("a", 0, 1)}).exchange.ns == 0);
}

TEST_CASE("an exchange between steps is no part of them", "[trace]") {
  // Steps 0–100 and 200–300. Under way: 80–220, of which 20 are in each step, and 240–250. The helper waits outside of
  // both at 350–400. The step computes 0–90 and 200–300: 10 of the first exchange, 20 and 10 of the others.
  const std::vector<std::string> steps = {annotation("ProfilerStep#1", 0, 100), annotation("ProfilerStep#2", 200, 100)};
  std::vector<std::string> host = steps, device = steps;
  for (const auto& one :
       {annotation("comm::gather", 80, 140, kHelper), annotation("gloo:all_reduce", 240, 10, kHelper),
        annotation("comm::barrier", 350, 50, kHelper), operation("aten::mm", 0, 90), operation("aten::mm", 200, 100)})
    host.push_back(one);
  for (const auto& one : {kernel("ncclDevKernel_A", 80, 140), kernel("ncclDevKernel_B", 240, 10),
                          kernel("ncclDevKernel_C", 350, 50), kernel("a", 0, 90), kernel("a", 200, 100)})
    device.push_back(one);
  for (const auto& events : {host, device}) {
    const auto rank = analysed(events);
    CHECK(rank.exchange.ns == 50000);
    CHECK(rank.exchange.under_compute_ns == 40000);
    AnalysisOptions second;
    second.step = 2;
    CHECK(analysed(events, second).exchange.ns == 30000);
  }
  CHECK(analysed(host).breakdown.ns[static_cast<size_t>(Category::communication)] == 50000);
}

}  // namespace trainopt::trace
