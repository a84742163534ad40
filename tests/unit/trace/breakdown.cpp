#include "trace/device_time.h"

#include "events.h"
#include "support/catch.h"

namespace trainopt::trace {
namespace {

/// In microseconds, in the order of Category.
std::vector<double> parts(const Breakdown& breakdown) {
  std::vector<double> all;
  for (const int64_t ns : breakdown.ns) all.push_back(static_cast<double>(ns) / 1000);
  return all;
}

}  // namespace

TEST_CASE("each instant of a step belongs to the first active category", "[trace]") {
  // Step 4, 1000 to 1100:
  //   cpu           1010–1090, an annotation on the thread of the step
  //   loader        1010–1020 wins over cpu
  //   runtime       1020–1030
  //   communication 1025–1040 on gloo's thread: 15, of which 5 would be runtime's
  //   memset        1035–1045: 10
  //   memcpy        1040–1060: 20, of which 5 would be memset's
  //   kernel        1055–1070: 15, of which 5 would be memcpy's; 1075–1080 on another stream: 5
  // left: kernel 20, memcpy 1040–1055 = 15, memset 1035–1040 = 5, communication 1025–1035 = 10, runtime 1020–1025 = 5,
  //   loader 10, cpu 1070–1075 and 1080–1090 = 15, other 1000–1010 and 1090–1100 = 20. In all 100.
  const std::vector<std::string> events = {
      annotation("ProfilerStep#4", 1000, 100),
      annotation("unit::all", 1010, 80),
      annotation("loader::wait", 1010, 10),
      launch(1, 1020, 10),
      annotation("gloo:all_reduce", 1025, 15, kHelper),
      on_device("gpu_memset", "Memset (Device)", 1035, 10),
      on_device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1040, 20),
      kernel("sgemm", 1055, 15),
      kernel("sgemm", 1075, 5),
      kernel("ncclDevKernel_AllReduce", 1055, 25),  // 1070–1075 alone: communication, not cpu
  };
  const auto rank = analysed(events);
  REQUIRE(rank.steps.size() == 1);
  CHECK(rank.steps[0].step == 4);
  CHECK(rank.breakdown.wall_ns == 100000);
  CHECK(parts(rank.breakdown) == std::vector<double>{20, 15, 5, 15, 5, 10, 10, 20});
}

TEST_CASE("only the threads of the step count as cpu", "[trace]") {
  // Step 1 is 0–100, step 2 is 100–150. The autograd thread works 20–40 and 90–110, a helper all the time.
  const auto rank = analysed({
      annotation("ProfilerStep#1", 0, 100),
      annotation("ProfilerStep#2", 100, 50),
      operation("aten::add", 10, 20),
      operation("autograd::engine::evaluate_function:AddBackward0", 20, 20, "", kAutograd),
      operation("aten::mul", 90, 20, "", kAutograd),
      annotation("loader::sample", 0, 150, kHelper),
      operation("aten::stack", 0, 150, "", kHelper),
      annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 40, 5),
      annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 40, 100, kAutograd),
  });
  REQUIRE(rank.steps.size() == 2);
  // Step 1: loader 40–45; cpu 10–40 and 90–100.
  CHECK(parts(rank.steps[0].breakdown) == std::vector<double>{0, 0, 0, 0, 0, 5, 40, 55});
  CHECK(parts(rank.steps[1].breakdown) == std::vector<double>{0, 0, 0, 0, 0, 0, 10, 40});
  CHECK(rank.breakdown.wall_ns == 150000);
  CHECK(parts(rank.breakdown) == std::vector<double>{0, 0, 0, 0, 0, 5, 50, 95});
}

TEST_CASE("without annotations the whole trace is one step", "[trace]") {
  // From the first event's start to the last one's end; the busiest thread that decodes nothing is the step's.
  const auto rank = analysed({
      operation("aten::add", 10, 20),
      annotation("loader::sample", 0, 90, kHelper),
      operation("aten::mul", 50, 5, "", kAutograd),
  });
  CHECK_FALSE(rank.labelled_steps);
  CHECK(parts(rank.breakdown) == std::vector<double>{0, 0, 0, 0, 0, 0, 20, 70});
}

TEST_CASE("communication on the CPU", "[trace]") {
  for (const char* name :
       {"comm::all_reduce", "c10d::allreduce_", "record_param_comms", "gloo:broadcast", "nccl:gather"})
    CHECK(parts(analysed({operation("aten::add", 0, 10), annotation(name, 4, 2)}).breakdown)[3] == 2);
}

TEST_CASE("one step alone", "[trace]") {
  const std::vector<std::string> events = {annotation("ProfilerStep#1", 0, 100), operation("aten::add", 10, 20),
                                           annotation("ProfilerStep#2", 100, 50), operation("aten::mul", 110, 20),
                                           kernel("late", 140, 30)};
  AnalysisOptions options;
  options.step = 2;
  const auto rank = analysed(events, options);
  CHECK(rank.breakdown.wall_ns == 50000);
  CHECK(parts(rank.breakdown) == std::vector<double>{10, 0, 0, 0, 0, 0, 20, 20});
  REQUIRE(rank.operations.size() == 2);
  CHECK(rank.operations[1].name == "aten::mul");
  REQUIRE(rank.kernels.size() == 1);
  CHECK(rank.kernels[0].total_ns == 30000);
  options.step = 3;
  CHECK_THROWS_WITH(analysed(events, options), ContainsSubstring("steps 1 to 2, not step 3"));
  CHECK_THROWS_WITH(analysed({operation("aten::add", 10, 20)}, options), ContainsSubstring("no ProfilerStep"));
}

}  // namespace trainopt::trace
