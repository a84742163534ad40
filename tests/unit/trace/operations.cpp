#include "trace/operations.h"

#include "events.h"
#include "support/catch.h"
#include "trace/flops.h"

#include <algorithm>

namespace trainopt::trace {
namespace {

/// Calls and microseconds.
struct Row {
  int64_t calls;
  double cpu_self, cpu_total, device_self, device_total;
  bool operator==(const Row&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << row.calls << ' ' << row.cpu_self << ' ' << row.cpu_total << ' ' << row.device_self << ' '
             << row.device_total;
}

const Operation& operation_named(const RankAnalysis& rank, const std::string& name, const std::string& group = "") {
  const auto found = std::find_if(rank.operations.begin(), rank.operations.end(), [&](const Operation& operation) {
    return operation.name == name && operation.group == group;
  });
  INFO(name);
  REQUIRE(found != rank.operations.end());
  return *found;
}

Row row(const RankAnalysis& rank, const std::string& name, const std::string& group = "") {
  const Operation& found = operation_named(rank, name, group);
  const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1000; };
  return {found.calls, us(found.cpu_self_ns), us(found.cpu_total_ns), us(found.device_self_ns),
          us(found.device_total_ns)};
}

}  // namespace

TEST_CASE("self time is the time outside of the children", "[trace]") {
  // outer 0–100 has a (10–40, with b 10–20 and b 20–40) and b (50–60). Thread 8 nests by itself.
  const auto rank = analysed({
      operation("outer", 0, 100),
      operation("a", 10, 30),
      operation("b", 10, 10),
      operation("b", 20, 20),
      operation("b", 50, 10),
      operation("b", 5, 60, "", kAutograd),
  });
  CHECK(row(rank, "outer") == Row{1, 60, 100, 0, 0});
  CHECK(row(rank, "a") == Row{1, 0, 30, 0, 0});
  CHECK(row(rank, "b") == Row{4, 100, 100, 0, 0});
}

TEST_CASE("an event that outlasts its predecessor is not its child", "[trace]") {
  // b starts in a and ends after it; c starts in a too, but a is closed by then, so c is in b.
  const auto rank = analysed({operation("a", 0, 10), operation("b", 5, 10), operation("c", 6, 2)});
  CHECK(row(rank, "a") == Row{1, 10, 10, 0, 0});
  CHECK(row(rank, "b") == Row{1, 8, 10, 0, 0});
}

TEST_CASE("an only child with its parent's name is hidden", "[trace]") {
  // x > x > x > y: one x of 100, whose child is y. With a second child, nothing is hidden.
  const auto rank =
      analysed({operation("x", 0, 100), operation("x", 10, 80), operation("x", 20, 60), operation("y", 30, 10),
                operation("z", 200, 100), operation("z", 210, 10), operation("y", 230, 10)});
  CHECK(row(rank, "x") == Row{1, 90, 100, 0, 0});
  CHECK(row(rank, "z") == Row{2, 90, 110, 0, 0});
  CHECK(row(rank, "y") == Row{2, 20, 20, 0, 0});
}

TEST_CASE("what Python leaves out", "[trace]") {
  const auto rank = analysed({operation("a", 0, 100), operation("aten::is_leaf", 10, 50), operation("b", 20, 10)});
  CHECK(row(rank, "a") == Row{1, 90, 100, 0, 0});
  CHECK(rank.operations.size() == 2);
}

TEST_CASE("a collective's own range has a total and no self time", "[trace]") {
  // It would otherwise take b's parent away.
  const auto rank = analysed({operation("a", 0, 100), annotation("gloo:all_reduce", 10, 150), operation("b", 20, 10)});
  CHECK(row(rank, "a") == Row{1, 90, 100, 0, 0});
  CHECK(row(rank, "gloo:all_reduce") == Row{1, 0, 150, 0, 0});
}

TEST_CASE("steps are one row, annotations and operations separate ones", "[trace]") {
  const auto rank = analysed({annotation("ProfilerStep#1", 0, 10), annotation("ProfilerStep#2", 10, 10),
                              annotation("twin", 20, 10), operation("twin", 40, 5)});
  CHECK(row(rank, "ProfilerStep*") == Row{2, 20, 20, 0, 0});
  REQUIRE(rank.operations.size() == 3);
  CHECK(rank.operations[1].kind == HostKind::annotation);
  CHECK(rank.operations[1].cpu_total_ns == 10000);
  CHECK(rank.operations[2].kind == HostKind::operation);
  CHECK(rank.operations[2].cpu_total_ns == 5000);
}

TEST_CASE("device time belongs to the operation that launched the kernel", "[trace]") {
  // linear (id 1) > addmm (id 2). addmm launches kernel 1 (30 µs, names its operation) and kernel 2 (20 µs, found
  // through its launch); linear a copy of 5 µs. Kernel 3 (7 µs) names nobody: it belongs to `own`, around its launch.
  const auto rank = analysed({
      operation("linear", 0, 100, R"("External id": 1)"),
      operation("addmm", 10, 50, R"("External id": 2)"),
      launch(1, 20, 5, R"(, "External id": 2)"),
      launch(2, 30, 5, R"(, "External id": 2)"),
      launch(4, 70, 5, R"(, "External id": 1)"),
      operation("own", 200, 50, R"("External id": 3)"),
      launch(3, 210, 5),
      kernel("gemm", 300, 30, R"("External id": 2, "correlation": 1)"),
      kernel("gemm", 340, 20, R"("correlation": 2)"),
      on_device("gpu_memcpy", "Memcpy DtoD", 370, 5, R"("External id": 1, "correlation": 4)"),
      kernel("mine", 380, 7, R"("correlation": 3)"),
      kernel("nobody's", 390, 9),
  });
  CHECK(row(rank, "addmm") == Row{1, 40, 50, 50, 50});
  CHECK(row(rank, "linear") == Row{1, 45, 100, 5, 55});
  CHECK(row(rank, "own") == Row{1, 45, 50, 7, 7});
  CHECK(row(rank, "cudaLaunchKernel") == Row{4, 20, 20, 0, 0});
  CHECK(operation_named(rank, "cudaLaunchKernel").kind == HostKind::runtime);
}

TEST_CASE("a runtime call is on the thread of its operation", "[trace]") {
  const auto rank =
      analysed({operation("a", 0, 100, R"("External id": 1)"),
                event("cuda_runtime", "cudaLaunchKernel", 12345, 10, 20, R"("correlation": 1, "External id": 1)")});
  CHECK(row(rank, "a") == Row{1, 80, 100, 0, 0});
}

TEST_CASE("operations by shape and by unit", "[trace]") {
  const std::vector<std::string> events = {annotation("unit::stem", 0, 50),
                                           operation("add", 10, 5, R"("Input Dims": [[4, 3], [], [[2, 2], [1]]])"),
                                           operation("add", 20, 5, R"("Input Dims": [[4, 4]])"),
                                           annotation("unit_backward::stem", 60, 20),
                                           operation("add", 65, 5, R"("Input Dims": [[4, 4]])"),
                                           operation("add", 90, 5, R"("Input Dims": [])")};
  const auto shapes = analysed(events, {GroupBy::shape, {}});
  CHECK(row(shapes, "add", "[[4, 3], [], [[2, 2], [1]]]").calls == 1);
  CHECK(row(shapes, "add", "[[4, 4]]").calls == 2);
  CHECK(row(shapes, "add").calls == 1);
  const auto units = analysed(events, {GroupBy::unit, {}});
  CHECK(row(units, "add", "unit::stem").calls == 2);
  CHECK(row(units, "add", "unit_backward::stem").calls == 1);
  CHECK(row(units, "add").calls == 1);
  CHECK(row(units, "unit::stem", "unit::stem") == Row{1, 40, 50, 0, 0});
}

TEST_CASE("orders of operations", "[trace]") {
  auto rank = analysed({operation("a", 0, 10), operation("b", 20, 30), operation("c", 25, 20), operation("a", 60, 1)});
  const auto names = [&](SortBy by) {
    sort_operations(rank.operations, by);
    std::string all;
    for (const Operation& operation : rank.operations) all += operation.name;
    return all;
  };
  CHECK(names(SortBy::calls) == "abc");
  CHECK(names(SortBy::cpu_total) == "bca");
  CHECK(names(SortBy::cpu_self) == "cab");
}

TEST_CASE("FLOPs by PyTorch's formulas", "[trace]") {
  const std::vector<std::string> same = {"", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"};
  CHECK(flops_of("aten::mm", "[[4, 3], [3, 5]]", {}) == 2 * 4 * 3 * 5);
  CHECK(flops_of("aten::addmm", "[[5], [4, 3], [3, 5], [], []]", {}) == 2 * 4 * 3 * 5);
  CHECK(flops_of("mkldnn::_linear_pointwise", "[[2, 4, 3], [5, 3], [5], [], [], []]", {}) == 2 * 8 * 3 * 5);
  CHECK(flops_of("aten::bmm", "[[7, 4, 3], [7, 3, 5]]", {}) == 7 * 2 * 4 * 3 * 5);
  CHECK(flops_of("aten::baddbmm", "[[7, 4, 5], [7, 4, 3], [7, 3, 5], [], []]", {}) == 7 * 2 * 4 * 3 * 5);
  CHECK(flops_of("aten::add", "[[4, 3], [1], []]", {}) == 12);
  CHECK(flops_of("aten::mul", "[[4, 3], []]", {}) == 12);
  // Padding 1 keeps 8 × 8 outputs: 2 · batch 2 · 64 outputs · 3 × 3 weights · 3 channels in · 16 out.
  const std::string image = "[[2, 3, 8, 8], [16, 3, 3, 3], [16], [], [], [], []]";
  CHECK(flops_of("aten::conv2d", image, same) == 2 * 2 * 64 * 9 * 3 * 16);
  // Stride 2, no padding: (8 − 3) / 2 + 1 = 3 outputs a side.
  const std::vector<std::string> strided = {"", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "1"};
  CHECK(flops_of("aten::conv2d", image, strided) == 2 * 2 * 9 * 9 * 3 * 16);
  CHECK(flops_of("aten::conv2d", image, {"", "", "", "[2]", "[0]", "[1]", "1"}) == 2 * 2 * 9 * 9 * 3 * 16);  // from C++
  const std::vector<std::string> grouped = {"", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "16"};
  CHECK(flops_of("aten::conv2d", "[[2, 16, 8, 8], [16, 1, 3, 3], [], [], [], [], []]", grouped) == 2 * 2 * 64 * 9 * 16);
  CHECK(flops_of("aten::mm", "[[4, 0], [0, 5]]", {}) == 0);
  for (const char* unfit : {"", "[]", "[[4, 3]]", "[[], []]"}) CHECK(flops_of("aten::mm", unfit, {}) == -1);
  CHECK(flops_of("aten::conv2d", image, {}) == -1);
  CHECK(flops_of("aten::conv2d", image, {"", "", "", "same", "[1, 1]", "[1, 1]", "1"}) == -1);
  CHECK(flops_of("aten::relu", "[[4, 3]]", {}) == -1);
}

TEST_CASE("FLOPs in the trace win over the formula", "[trace]") {
  const auto rank = analysed({operation("aten::mm", 0, 10, R"("Input Dims": [[4, 3], [3, 5]])"),
                              operation("aten::mm", 20, 10, R"("Input Dims": [[4, 3], [3, 5]], "flops": 1000)"),
                              operation("own::step", 40, 10, R"("flops": 7)")});
  CHECK(operation_named(rank, "aten::mm").flops == 120 + 1000);
  CHECK(operation_named(rank, "own::step").flops == 7);
}

}  // namespace trainopt::trace
