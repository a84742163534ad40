#include "trace/units.h"

#include "events.h"
#include "support/catch.h"

namespace trainopt::trace {

TEST_CASE("units of the model", "[trace]") {
  // body contains stem. Forward: body 0–100 with stem 10–40; backward: body 200–260, stem on the autograd thread.
  const auto rank = analysed({
      annotation("unit::body", 0, 100),
      annotation("unit::stem", 10, 30),
      operation("aten::mm", 15, 10, R"("External id": 1, "Input Dims": [[4, 3], [3, 5]])"),
      operation("aten::mul", 50, 10, R"("External id": 2, "Input Dims": [[4, 3]])"),
      annotation("unit::stem", 110, 20),
      annotation("unit_backward::body", 200, 60),
      operation("aten::mm", 210, 10, R"("External id": 3, "Input Dims": [[4, 3], [3, 5]])"),
      annotation("unit_backward::stem", 300, 7, kAutograd),
      launch(1, 20, 1, R"(, "External id": 1)"),
      kernel("gemm", 500, 40, R"("External id": 1, "correlation": 1)"),
      kernel("mul", 550, 5, R"("External id": 2)"),
      kernel("gemm", 560, 80, R"("External id": 3)"),
  });
  REQUIRE(rank.units.size() == 2);
  const Unit &body = rank.units[0], &stem = rank.units[1];
  CHECK(body.name == "body");
  CHECK(body.calls == 1);
  CHECK(body.forward_ns == 100000);
  CHECK(body.backward_ns == 60000);
  CHECK(body.device_forward_ns == 45000);
  CHECK(body.device_backward_ns == 80000);
  CHECK(body.flops == 120 + 12);
  CHECK(stem.name == "stem");
  CHECK(stem.calls == 2);
  CHECK(stem.forward_ns == 50000);
  CHECK(stem.backward_ns == 7000);
  CHECK(stem.device_forward_ns == 40000);
  CHECK(stem.device_backward_ns == 0);
  CHECK(stem.flops == 120);
}

TEST_CASE("a unit inside itself counts once", "[trace]") {
  const auto rank = analysed({annotation("unit::a", 0, 100), annotation("unit::a", 10, 10), operation("x", 30, 5),
                              annotation("unit::b", 200, 50), annotation("unit::b", 210, 10)});
  REQUIRE(rank.units.size() == 2);
  CHECK(rank.units[0].calls == 1);
  CHECK(rank.units[0].forward_ns == 100000);
  CHECK(rank.units[1].calls == 1);
  CHECK(rank.units[1].forward_ns == 50000);
}

}  // namespace trainopt::trace
