#include "device/stream.h"

#include "base/error.h"
#include "device/tensor.h"
#include "support/catch.h"

#include <thread>

using namespace trainopt;

TEST_CASE("events on the CPU use the host's clock") {
  const Stream stream = Stream::current(at::kCPU);
  CHECK(stream == Stream::side(at::kCPU));
  Event start(at::kCPU, true), end(at::kCPU, true);
  CHECK(!start.recorded());
  CHECK(start.ready());
  CHECK_THROWS_AS(elapsed_ms(start, end), BrokenInvariant);
  start.record(stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  end.record(stream);
  end.block(stream);
  end.synchronize();
  stream.synchronize();
  CHECK(end.ready());
  CHECK(elapsed_ms(start, end) >= 5.0);
  CHECK(elapsed_ms(start, end) < 5000.0);
  CHECK(elapsed_ms(end, start) == -elapsed_ms(start, end));
  Event moved = std::move(start);
  CHECK(elapsed_ms(moved, end) >= 5.0);
}

TEST_CASE("a stream guard on the CPU changes nothing") {
  const StreamGuard guard(Stream::side(at::kCPU));
  CHECK(at::ones({3}).sum().item<float>() == 3.0f);
}
