// The checker itself, on sequences that are known to be right or wrong, through lib/device's own streams and events.
#include "device/device.h"
#include "device/stream.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "support/recording_device.h"

using namespace trainopt;
using namespace trainopt::test;
using Catch::Matchers::Contains;

namespace {

at::TensorOptions floats() { return at::TensorOptions(at::kFloat).device(recording_device()); }

at::Tensor made_on(const Stream& stream) {
  const StreamGuard guard(stream);
  return at::ones({4}, floats());
}

void read_on(const Stream& stream, const at::Tensor& tensor) {
  const StreamGuard guard(stream);
  tensor.sum();
}

void write_on(const Stream& stream, at::Tensor tensor) {
  const StreamGuard guard(stream);
  tensor.fill_(2);
}

std::vector<std::string> problems_of(const std::function<void(Stream first, Stream second)>& work) {
  return recorded_accesses([&] { work(Stream::side(recording_device()), Stream::side(recording_device())); })
      .problems();
}

}  // namespace

TEST_CASE("a read must wait for the write, on whatever stream") {
  const auto unordered = problems_of([](Stream first, Stream second) { read_on(second, made_on(first)); });
  REQUIRE(unordered.size() == 1);
  CHECK_THAT(unordered.front(), Contains("reads memory in 'aten::sum") && Contains("may still be writing in"));
  CHECK(problems_of([](Stream first, Stream second) {
          const at::Tensor tensor = made_on(first);
          Event done(first.device());
          done.record(first);
          done.block(second);
          read_on(second, tensor);
        }).empty());
  CHECK(problems_of([](Stream first, Stream second) {
          const at::Tensor tensor = made_on(first);
          first.synchronize();  // what the host knows, later launches know
          read_on(second, tensor);
        }).empty());
  CHECK(problems_of([](Stream first, Stream) { read_on(first, made_on(first)); }).empty());
}

TEST_CASE("an event orders what precedes its last record only") {
  CHECK(problems_of([](Stream first, Stream second) {
          const at::Tensor tensor = at::ones({4}, floats());
          Event early(first.device());
          early.record(first);
          write_on(first, tensor);
          early.block(second);
          read_on(second, tensor);
        }).size() == 2);  // the write on `first` did not wait for the one on the default stream either
  CHECK(problems_of([](Stream first, Stream second) {
          const at::Tensor tensor = made_on(first);
          Event never(first.device());
          never.block(second);
          read_on(second, tensor);
        }).size() == 1);
}

TEST_CASE("memory must not be overwritten before its readers are done, reads need no order") {
  const auto prepared = [](Stream first, Stream second) {
    const at::Tensor tensor = made_on(first);
    synchronize(first.device());
    read_on(first, tensor);
    read_on(second, tensor);
    return tensor;
  };
  CHECK(problems_of([&](Stream first, Stream second) { prepared(first, second); }).empty());
  const auto overwritten = problems_of([&](Stream first, Stream second) { write_on(first, prepared(first, second)); });
  REQUIRE(overwritten.size() == 1);
  CHECK_THAT(overwritten.front(), Contains("writes memory") && Contains("may still be reading in"));
  CHECK(problems_of([&](Stream first, Stream second) {
          const at::Tensor tensor = prepared(first, second);
          Event read(first.device());
          read.record(second);
          read.block(first);
          write_on(first, tensor);
        }).empty());
}

TEST_CASE("order passes from stream to stream") {
  CHECK(problems_of([](Stream first, Stream second) {
          const Stream third = Stream::side(first.device());
          const at::Tensor tensor = made_on(first);
          Event one(first.device()), two(first.device());
          one.record(first);
          one.block(second);
          two.record(second);
          two.block(third);
          read_on(third, tensor);
        }).empty());
}

TEST_CASE("a copy from the host reads its source until the host has waited") {
  const auto overwritten = [](bool non_blocking, bool waits) {
    return problems_of([&](Stream first, Stream) {
      const at::Tensor source = at::ones({4});
      const StreamGuard guard(first);
      const at::Tensor copy = source.to(recording_device(), non_blocking);
      Event done(first.device());
      done.record(first);
      CHECK(done.ready() == !non_blocking);
      if (waits) done.synchronize();
      host_writes("the next batch", source.const_data_ptr(), 16);
    });
  };
  REQUIRE(overwritten(true, false).size() == 1);
  CHECK_THAT(overwritten(true, false).front(), Contains("the host writes memory in 'the next batch'"));
  CHECK(overwritten(true, true).empty());
  CHECK(overwritten(false, false).empty());
}

TEST_CASE("freed memory is reused on its own stream, while another stream may still read it unless it is recorded") {
  const auto reused = [](bool recorded) {
    return problems_of([&](Stream first, Stream second) {
      at::Tensor tensor = made_on(first);
      Event done(first.device());
      done.record(first);
      done.block(second);
      if (recorded) tensor.record_stream(second.handle());
      read_on(second, tensor);
      tensor.reset();
      made_on(first);
      CHECK(reused_blocks() == (recorded ? 0 : 1));
    });
  };
  REQUIRE(reused(false).size() == 1);
  CHECK(reused(true).empty());
}
