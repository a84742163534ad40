// Which part of a run's time is named as its limit.
#include "run/limit.h"

#include <catch2/catch.hpp>

namespace trainopt {
namespace {

/// A step of 100 ms: 30 forward, 60 backward, 10 update; nothing else.
RunTimes steady() {
  RunTimes times{.steps = 100};
  times.step = {
      .mean_ms = 100, .forward_ms = 30, .backward_ms = 60, .update_ms = 10, .data_wait_pct = 0, .noise_pct = 1};
  return times;
}

/// Of a step of 100 ms, the rest computes.
RunTimes waiting(double pct) {
  RunTimes times = steady();
  times.step.data_wait_pct = pct;
  times.step.forward_ms = 0.3 * (100 - pct);
  times.step.backward_ms = 0.6 * (100 - pct);
  times.step.update_ms = 0.1 * (100 - pct);
  return times;
}

double sum_of(const Limit& limit) {
  double sum = 0;
  for (const TimePart& part : limit.parts) sum += part.share_pct;
  return sum;
}

}  // namespace

TEST_CASE("a run that only computes is limited by computing") {
  const Limit limit = find_limit(steady());
  CHECK(limit.name == "compute");
  CHECK(limit.share_pct == Approx(90));
  CHECK(sum_of(limit) == Approx(100));
}

TEST_CASE("waiting for data is the limit above the noise, and not below it") {
  RunTimes times = waiting(20);
  times.loader = LoaderShares{.read_pct = 5, .decode_pct = 80, .transform_pct = 15, .sample_us = 500};
  const Limit limit = find_limit(times);
  CHECK(limit.name == "loader");
  CHECK(limit.share_pct == Approx(20));
  CHECK(limit.text.find("the training thread loads the data itself") != std::string::npos);
  CHECK(limit.text.find("decoding takes 80 %") != std::string::npos);
  times.step.noise_pct = 25;
  CHECK(find_limit(times).name == "compute");
}

TEST_CASE("waiting for bytes from object storage is named, with what more concurrency would give") {
  RunTimes times = waiting(60);
  times.loader_threads = 2;
  times.loader = LoaderShares{.read_pct = 90, .decode_pct = 8, .transform_pct = 2, .sample_us = 500};
  CHECK(find_limit(times).name == "loader");
  times.storage = StorageUse{.fetched_bytes = int64_t{100} << 20, .requests = 900, .concurrency = 32};
  CHECK(find_limit(times).name == "loader");  // nothing was read from afar
  times.storage->speed = {
      .reads = 900, .active_s = 10, .reading_s = 310, .fast_ms = 20, .median_ms = 22, .slow_ms = 90};
  const Limit limit = find_limit(times);
  CHECK(limit.name == "storage");
  CHECK(limit.text.find("10.0 MiB/s, answers in 22 ms, 99 % of them within 90 ms; 31.0 of 32") != std::string::npos);
  CHECK(limit.text.find("twice data.storage.concurrency") != std::string::npos);
  times.storage->speed.median_ms = 80;
  CHECK(find_limit(times).text.find("4.0 times as long as the fastest") != std::string::npos);
  times.storage->speed.reading_s = 50;
  CHECK(find_limit(times).text.find("5.0 of 32 requests under way, so more") != std::string::npos);
  times.loader->read_pct = 20;
  times.loader->decode_pct = 78;
  CHECK(find_limit(times).name == "loader");
}

TEST_CASE("what comes between steps is a share of all time") {
  RunTimes times = steady();  // 10 s
  times.evaluation_s = 10;
  const Limit evaluation = find_limit(times);
  CHECK(evaluation.name == "evaluation");
  CHECK(evaluation.share_pct == Approx(50));
  CHECK(sum_of(evaluation) == Approx(100));
  times.checkpoint_s = 20;
  CHECK(find_limit(times).name == "checkpoints");
}

TEST_CASE("records, copies and exchanges are named") {
  RunTimes records = steady();
  records.records_s = 2;
  CHECK(find_limit(records).name == "records");

  RunTimes copy = steady();
  copy.step.copy_pct = 15;
  CHECK(find_limit(copy).name == "compute");  // beside the step
  copy.copies_ahead = false;
  CHECK(find_limit(copy).name == "copy");

  RunTimes exchange = steady();
  exchange.step.exposed_pct = 30;
  CHECK(find_limit(exchange).name == "exchange");
  exchange.step.straggler = Straggler{.rank = 3, .busy_ms = 90, .others_ms = 65};
  const Limit straggler = find_limit(exchange);
  CHECK(straggler.name == "straggler");
  CHECK(straggler.share_pct == Approx(25));
}

TEST_CASE("starting operations is the limit of a run with many small ones") {
  RunTimes times = steady();
  times.operations_ms = 40;
  CHECK(find_limit(times).name == "compute");  // most of the time is not for starting them
  times.operations_ms = 60;
  const Limit on_cpu = find_limit(times);
  CHECK(on_cpu.name == "launches");
  CHECK(on_cpu.share_pct == Approx(60));
  CHECK(sum_of(on_cpu) == Approx(100));

  RunTimes gpu = steady();
  gpu.step.gpu_busy_pct = 55;
  CHECK(find_limit(gpu).name == "launches");
  CHECK(find_limit(gpu).share_pct == Approx(45));
}

TEST_CASE("a small share that limits a run is stated with the others") {
  RunTimes times = steady();
  times.operations_ms = 30;
  times.step.forward_ms = 20;
  times.step.backward_ms = 32;
  times.step.update_ms = 48;
  const Limit limit = find_limit(times);
  CHECK(limit.name == "compute");
  CHECK(limit.share_pct == Approx(36.4));
  CHECK(limit.text ==
        "compute: 36 % of the time computing forward and backward; updating the weights 34 %; "
        "starting operations 30 %");
  CHECK(find_limit(steady()).text == "compute: 90 % of the time computing forward and backward");
}

TEST_CASE("computing is told apart by what the roofline knows") {
  RunTimes times = steady();
  times.memory_bound_pct = 80;
  CHECK(find_limit(times).name == "memory bandwidth");
  times.memory_bound_pct = 20;
  times.step.mfu_pct = 63;
  CHECK(find_limit(times).text.find("63 % of the measured peak") != std::string::npos);
  RunTimes update = steady();
  update.step.update_ms = 200;
  update.step.mean_ms = 290;
  CHECK(find_limit(update).name == "update");
}

TEST_CASE("without enough steps nothing stands out") {
  RunTimes times = waiting(60);
  times.step.noise_pct.reset();
  CHECK(find_limit(times).name == "nothing");
  times.step.noise_pct = 95;
  const Limit noisy = find_limit(times);
  CHECK(noisy.name == "nothing");
  CHECK(noisy.text == "nothing stands out from the noise of 95.0 %");
}

}  // namespace trainopt
