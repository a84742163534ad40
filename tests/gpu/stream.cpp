#include "device/stream.h"

#include "device/tensor.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("a side stream is current inside its guard and is ordered by events") {
  const at::Device gpu(at::kCUDA, 0);
  const Stream main = Stream::current(gpu), side = Stream::side(gpu);
  CHECK(!(main == side));
  Event done(gpu, true), start(gpu, true);
  at::Tensor value;
  {
    const StreamGuard guard(side);
    CHECK(Stream::current(gpu) == side);
    start.record(side);
    value = at::ones({1 << 20}, gpu).cumsum(0);
    done.record(side);
  }
  CHECK(Stream::current(gpu) == main);
  done.block(main);
  CHECK(value.max().item<float>() == float(1 << 20));
  CHECK(done.ready());
  CHECK(elapsed_ms(start, done) > 0.0);
}
