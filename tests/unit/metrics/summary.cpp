#include "metrics/summary.h"

#include "base/philox.h"

#include "support/catch.h"

using namespace trainopt;

namespace {

StepRecord timed_row(double step_ms, double wait_ms = 0) {
  StepRecord row;
  row[Metric::step_ms] = step_ms;
  row[Metric::data_wait_ms] = wait_ms;
  row.step_samples = 10;
  return row;
}

}  // namespace

TEST_CASE("percentiles match numpy's") {
  // numpy.percentile([15, 20, 35, 40, 50], [0, 40, 50, 95, 99, 100])
  std::vector<double> values{50, 15, 40, 20, 35};
  CHECK(percentile(values, 0.0) == 15);
  CHECK(percentile(values, 0.4) == Approx(29.0));
  CHECK(percentile(values, 0.5) == 35);
  CHECK(percentile(values, 0.95) == Approx(48.0));
  CHECK(percentile(values, 0.99) == Approx(49.6));
  CHECK(percentile(values, 1.0) == 50);
  std::vector<double> one{7};
  CHECK(percentile(one, 0.99) == 7);
}

TEST_CASE("profiled steps count only towards their own slow-down") {
  Summary summary(0);
  for (int i = 0; i < 6; ++i) {
    StepRecord row = timed_row(i < 4 ? 10 : 12);
    row.profiling = i == 3 ? Profiling::warmup : i > 3 ? Profiling::active : Profiling::none;
    row[Metric::loss] = i;
    summary.add(row);
  }
  const Json json = summary.to_json();
  CHECK(json.at("measured_steps") == 3);
  CHECK(json.at("step_ms").at("mean") == 10);
  CHECK(json.at("loss").at("last") == 5);
  CHECK(json.at("profiler").at("steps") == 3);
  CHECK(json.at("profiler").at("slowdown_pct").get<double>() == Approx(20));
  CHECK_THAT(summary.table({}),
             Catch::Matchers::Contains("3 steps, not counted above; recording made a step 20.0 % slower"));
  CHECK(slowdown_text(-2.5) == "recording made no step measurably slower");
  CHECK(slowdown_text(0.04) == "recording made no step measurably slower");
  Summary none(0);
  none.add(timed_row(10));
  CHECK(none.to_json().at("profiler").is_null());
}

TEST_CASE("a phase has a mean only if every measured step has it") {
  Summary summary(1);
  for (int i = 0; i < 4; ++i) {
    StepRecord row = timed_row(10, 0);
    row[Metric::forward_ms] = i;
    if (i < 2) row[Metric::backward_ms] = 5.0;
    row[Metric::update_ms] = 2.0;
    summary.add(row);
  }
  CHECK(summary.to_json().at("phases_ms") == Json{{"forward", 2.0}, {"backward", nullptr}, {"update", 2.0}});
  CHECK_THAT(summary.table({}), Catch::Matchers::Contains("mean step           forward 2.0 ms, update 2.0 ms"));
}

TEST_CASE("statistics over ten warm-up steps and steps of 1 to 100 ms match values computed by hand") {
  Summary summary(10);
  for (int i = 0; i < 10; ++i) summary.add(timed_row(1e6, 1e6));
  for (int i = 1; i <= 100; ++i) {
    StepRecord row = timed_row(i, i % 2 == 0 ? 0.5 * i : 0.0);
    row[Metric::gpu_util_pct] = i <= 50 ? 0 : 100;
    row[Metric::loss] = 100.0 - i;
    row[Metric::memory_reserved_mib] = i == 60 ? 900 : 500;
    row[Metric::memory_peak_pct] = i < 60 ? 50 : 90;
    row[Metric::alloc_retries] = i < 60 ? 1 : 3;
    summary.add(row);
  }
  CHECK(summary.measured_steps() == 100);
  const Json json = summary.to_json();
  CHECK(json.at("samples_per_s").get<double>() == Approx(1000.0 / 5050.0 * 1e3));
  CHECK(json.at("step_ms").at("mean").get<double>() == Approx(50.5));
  CHECK(json.at("step_ms").at("p50").get<double>() == Approx(50.5));
  CHECK(json.at("step_ms").at("p95").get<double>() == Approx(95.05));
  CHECK(json.at("step_ms").at("p99").get<double>() == Approx(99.01));
  CHECK(json.at("data_wait_pct").get<double>() == Approx(100 * 0.5 * 2550 / 5050.0));
  CHECK(json.at("gpu_util_pct").get<double>() == Approx(100 * 3775 / 5050.0));
  CHECK(json.at("cpu_util_pct").is_null());
  CHECK(json.at("peak_memory_mib") == 900);
  CHECK(json.at("memory_peak_pct") == 90);
  CHECK(json.at("alloc_retries") == 2);
  CHECK(json.at("loss").at("first") == 99);
  CHECK(json.at("loss").at("last") == 0);
  CHECK(json.at("measured_steps") == 100);
  CHECK(json.at("left_out_steps") == 10);
}

TEST_CASE("energy and price of the measured steps match values computed by hand") {
  Summary summary(2);
  for (int step = 1; step <= 10; ++step) {  // 10 samples in half a second each
    StepRecord row = timed_row(500);
    if (step % 2 == 0) row[Metric::energy_j] = 100.0 + step;
    summary.add(row);
  }
  Json json = summary.to_json();
  // The first reading of the measured steps, in step 4, covers steps 3 and 4, but began at an unknown time before them.
  CHECK(json.at("energy_j") == 106 + 108 + 110);
  CHECK(json.at("samples_per_joule").get<double>() == Approx(60.0 / 324));
  CHECK(json.at("energy_source").is_null());
  CHECK(json.at("price_per_million_samples").is_null());
  CHECK_THAT(summary.table({}), !ContainsSubstring("price"));

  summary.set_energy_source(EnergySource{"cpu", "1 whole CPU package, other programs included"});
  summary.set_price_per_hour(3.6);
  json = summary.to_json();
  CHECK(json.at("energy_source") == "cpu");
  CHECK(json.at("energy_of") == "1 whole CPU package, other programs included");
  CHECK(json.at("price_per_million_samples").get<double>() == Approx(50.0));  // 0.001 a second, 20 samples a second
  CHECK_THAT(summary.table({}),
             ContainsSubstring("324 J, 0.1852 samples per joule (1 whole CPU package, other programs included)") &&
                 ContainsSubstring("50 per million samples, at 3.6 per hour"));
}

TEST_CASE("with several ranks there are samples per joule only if the energy is that of all") {
  Summary summary(0);
  for (int step = 1; step <= 4; ++step) {
    StepRecord row = timed_row(500);
    row.ranks = {{.step_ms = 500}, {.step_ms = 500}};
    row[Metric::energy_j] = 10;
    summary.add(row);
  }
  const Json json = summary.to_json();
  CHECK(json.at("energy_j") == 30);
  CHECK(json.at("samples_per_joule").is_null());
  summary.set_energy_of_all_ranks(true);
  CHECK(summary.to_json().at("samples_per_joule") == 1.0);
}

TEST_CASE("without readings the energy is null") {
  Summary summary(0);
  for (int step = 1; step <= 4; ++step) summary.add(timed_row(500));
  for (const char* name : {"energy_j", "energy_source", "energy_of", "samples_per_joule"})
    CHECK(summary.to_json().at(name).is_null());
}

TEST_CASE("warm-up steps are excluded, but at most half of the steps") {
  const auto left_out = [](int64_t warmup, int steps) {
    Summary summary(warmup);
    for (int i = 1; i <= steps; ++i) summary.add(timed_row(i));
    return std::pair(summary.left_out_steps(), summary.to_json().at("step_ms").at("mean"));
  };
  CHECK(left_out(10, 30) == std::pair<int64_t, Json>(10, 20.5));
  CHECK(left_out(10, 20) == std::pair<int64_t, Json>(10, 15.5));
  CHECK(left_out(10, 19) == std::pair<int64_t, Json>(9, 14.5));
  CHECK(left_out(10, 4) == std::pair<int64_t, Json>(2, 3.5));
  CHECK(left_out(10, 1) == std::pair<int64_t, Json>(0, 1.0));
  CHECK(left_out(0, 3) == std::pair<int64_t, Json>(0, 2.0));
}

TEST_CASE("a run without steps has no statistics") {
  const Summary summary(10);
  const Json json = summary.to_json();
  CHECK(json.at("samples_per_s").is_null());
  CHECK(json.at("step_ms").at("p99").is_null());
  CHECK(json.at("loss").at("first").is_null());
  CHECK(json.at("measured_steps") == 0);
  CHECK(summary.table({}).empty());
}

TEST_CASE("with millions of steps the mean is exact and the percentiles are close") {
  Summary summary(10);
  const int steps = 3'000'000;
  for (int i = 0; i < steps; ++i) summary.add(timed_row(1 + (i * 7919LL) % 1000));
  const Json step_ms = summary.to_json().at("step_ms");
  CHECK(step_ms.at("mean").get<double>() == Approx(500.5).epsilon(1e-4));
  CHECK(step_ms.at("p50").get<double>() == Approx(500.5).epsilon(0.01));
  CHECK(step_ms.at("p99").get<double>() == Approx(990.5).epsilon(0.01));
}

TEST_CASE("the throughput has an interval from sixty measured steps on, if their correlation is short") {
  // A step time of 10 or 12 ms, drawn at random every `same` steps.
  const auto summary_of = [](int steps, int same) {
    Summary summary(10);
    for (int i = 0; i < steps; ++i)
      summary.add(timed_row(i < 10 ? 1000 : 10 + 2 * (philox(7, 0, static_cast<uint64_t>(i / same))[0] & 1)));
    return summary;
  };
  CHECK(summary_of(69, 1).to_json().at("samples_per_s_interval").is_null());  // 59 are measured
  CHECK(summary_of(70, 1).to_json().at("samples_per_s_interval").is_object());
  CHECK(summary_of(110, 40).to_json().at("samples_per_s_interval").is_null());  // too few changes to estimate the noise

  // Step times that change at every step carry more information than times that stay the same for six steps.
  const Json often = summary_of(810, 1).to_json(), seldom = summary_of(810, 6).to_json();
  const auto width = [](const Json& json) {
    const Json& interval = json.at("samples_per_s_interval");
    CHECK(interval.at("level") == 0.95);
    CHECK(interval.at("low") < json.at("samples_per_s"));
    CHECK(interval.at("high") > json.at("samples_per_s"));
    return interval.at("high").get<double>() - interval.at("low").get<double>();
  };
  CHECK(width(seldom) > 1.5 * width(often));
  CHECK_THAT(summary_of(810, 6).table({}), ContainsSubstring(", 95 %)"));
}

TEST_CASE("warm-up steps affect neither the interval nor the warnings") {
  Summary summary(10);
  for (int i = 0; i < 100; ++i) {
    StepRecord row = timed_row(i < 10 ? 1000 : 10);
    row[Metric::other_cpu_pct] = i < 10 ? 90 : 0;
    row[Metric::gpu_throttle] = i < 10 ? 32 : 0;
    summary.add(row);
  }
  const Json json = summary.to_json();
  CHECK(json.at("samples_per_s_interval").at("low").get<double>() == Approx(1000));
  CHECK(json.at("samples_per_s_interval").at("high").get<double>() == Approx(1000));
  CHECK(json.at("warnings") == Json::array());
}

TEST_CASE("a warning appears in the JSON and at the end of the table") {
  Summary summary(0);
  for (int i = 0; i < 100; ++i) {
    StepRecord row = timed_row(10);
    row[Metric::other_cpu_pct] = 34;
    summary.add(row);
  }
  const std::string sentence = "the machine was busy: other programs used 34 % of the CPUs available to this run";
  CHECK(summary.to_json().at("warnings") == Json{sentence});
  CHECK(summary.table({{"amp", "no effect"}}).ends_with("\n  warning             " + sentence));
}

TEST_CASE("the table lists the statistics and the switches") {
  Summary summary(1);
  for (int i = 0; i < 5; ++i) {
    StepRecord row = timed_row(20, 0.4);
    row[Metric::gpu_util_pct] = 97;
    summary.add(row);
  }
  summary.set_peak_memory(2048);
  summary.set_time_to_first_step(2.14);
  CHECK(summary.table(
            {{"amp", "convolutions in bfloat16"}, {"channels_last", "no effect: the model has no convolution"}}) ==
        "  samples/s           500\n"
        "  step time           p50 20.0 ms   p95 20.0 ms   p99 20.0 ms\n"
        "  waiting for data    2.0 % of the time\n"
        "  GPU utilization     97 % of the time with a kernel running (NVML), mean\n"
        "  peak memory         2.0 GiB\n"
        "  time to first step  2.1 s\n"
        "  measured over       4 steps, the first 1 excluded as warm-up\n"
        "  amp                 convolutions in bfloat16\n"
        "  channels_last       no effect: the model has no convolution");
}

TEST_CASE("with several ranks, the measured steps take as long as the job, whichever rank is late") {
  Summary summary(1);
  const auto add = [&](double of_rank_0, double of_rank_1) {
    StepRecord row = timed_row(of_rank_0);
    row.ranks = {{.step_ms = of_rank_0}, {.step_ms = of_rank_1}};
    summary.add(row);
  };
  add(500, 500);  // warm-up
  add(10, 30);    // rank 1 ends late …
  add(30, 10);    // … and catches up, so both steps together take 40 ms
  add(20, 20);
  add(20, 70);
  const std::vector<Piece> pieces = summary.pieces();
  REQUIRE(pieces.size() == 4);
  const std::array wanted{0.030, 0.010, 0.020, 0.070};
  for (size_t i = 0; i < wanted.size(); ++i) {
    CHECK(pieces[i].seconds == Approx(wanted[i]));
    CHECK(pieces[i].samples == 10);
  }
}
