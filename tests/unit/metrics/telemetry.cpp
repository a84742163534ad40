#include "metrics/hardware/telemetry.h"

#include "base/json.h"
#include "device/process.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <cmath>

using namespace trainopt;

namespace {

void wait_for_samples(const Telemetry& telemetry, Clock::time_point begin) {
  for (int i = 0; i < 3000 && !telemetry.between(begin, Clock::now()).values[Metric::cpu_util_pct]; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

TEST_CASE("a step's telemetry has the mean, the largest value, or all bits of its samples") {
  const std::vector<double> values{4, 32, 4, 0};
  CHECK(combined(Aggregate::mean, values) == 10);
  CHECK(combined(Aggregate::max, values) == 32);
  CHECK(combined(Aggregate::last, values) == 0);
  CHECK(combined(Aggregate::bits_or, values) == 36);
  CHECK(info(Metric::gpu_throttle).aggregate == Aggregate::bits_or);
}

TEST_CASE("telemetry measures CPU and memory of this process") {
  TemporaryFolder folder;
  const auto begin = Clock::now();
  std::optional<Telemetry> telemetry;
  telemetry.emplace(TelemetryOptions{
      .device = c10::Device(c10::kCPU), .interval_s = 0.02, .file = folder.path() / "telemetry.jsonl"});
  // One computing thread uses about one core, however many there are.
  double sink = 0;
  for (const auto until = begin + std::chrono::milliseconds(300); Clock::now() < until;) sink += std::sqrt(sink + 1);
  wait_for_samples(*telemetry, begin);
  const Values values = telemetry->between(begin, Clock::now()).values;
  CHECK(sink > 0);
  CHECK(*values[Metric::cpu_util_pct] * allowed_cores() > 2);
  CHECK(*values[Metric::cpu_util_pct] < 150);
  CHECK(*values[Metric::process_rss_mib] > 5);
  CHECK(!values[Metric::gpu_util_pct]);
  CHECK(telemetry->reasons().at("gpu_util_pct") == "the run uses no GPU");

  StepRecord row;
  row.began = begin;
  row.ended = Clock::now();
  row[Metric::process_rss_mib] = 1.0;
  telemetry->fill(row);
  CHECK(row[Metric::process_rss_mib] == 1.0);
  CHECK(row[Metric::cpu_util_pct].has_value());
  telemetry->stop();
  telemetry->stop();
  CHECK(telemetry->between(begin, Clock::now()).values[Metric::cpu_util_pct].has_value());
  telemetry.reset();

  std::stringstream lines(folder.text("telemetry.jsonl"));
  int count = 0;
  double last = -1;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = Json::parse(line);
    CHECK(json.at("time_s").get<double>() > last);
    last = json.at("time_s").get<double>();
    CHECK(json.at("gpu_util_pct").is_null());
    CHECK(json.at("process_rss_mib").is_number());
    CHECK(!json.contains("loss"));
  }
  CHECK(count >= 3);
}

TEST_CASE("busy seconds are those of the given CPUs") {
  const std::string_view stat =
      "cpu  999 9 9 9 9 9 9 9 9 9\ncpu0 100 10 50 9000 70 3 2 35 0 0\ncpu1 300 0 0 1 1 0 0 0 0 0\ncpu12 1 0 0 0 0 0 0 "
      "0 0 0\nintr 5 5\n";
  CHECK(busy_seconds(stat, {0}, 100) == 2.0);
  CHECK(busy_seconds(stat, {1, 12}, 100) == Approx(3.01));
  CHECK(!busy_seconds(stat, {0, 2}, 100));
  CHECK(!busy_seconds(stat, {}, 100));
  CHECK(!busy_seconds("", {0}, 100));
}

TEST_CASE("the load of others is the busy time less this process's own") {
  const auto start = Clock::now();
  const auto after = [&](int milliseconds) { return start + std::chrono::milliseconds(milliseconds); };
  std::optional<double> busy = 100;
  OtherLoad load(
      4, [&] { return busy; }, 10, start);
  busy = 101;
  CHECK(!load.sample(10, after(400)));  // too early
  CHECK(*load.sample(10.5, after(1000)) == Approx(12.5));
  CHECK(*load.sample(99, after(1400)) == Approx(12.5));  // too early: the previous value
  CHECK(load.sample(12, after(2000)) == 0.0);            // never negative, although own CPU time can be ahead
  busy.reset();
  CHECK(!load.sample(13, after(3000)));
  busy = 110;
  CHECK(!load.sample(13, after(4000)));
  busy = 114;
  CHECK(*load.sample(13, after(5000)) == Approx(100));
}

TEST_CASE("a window without a sample uses the latest one before it") {
  const auto begin = Clock::now();
  Telemetry telemetry({.interval_s = 0.02});
  wait_for_samples(telemetry, begin);
  telemetry.stop();
  const auto now = Clock::now();
  CHECK(telemetry.between(now, now).values[Metric::process_rss_mib].has_value());
  CHECK(!telemetry.between(begin - std::chrono::seconds(2), begin - std::chrono::seconds(1))
             .values[Metric::process_rss_mib]);
}

TEST_CASE("paused telemetry takes no samples, and takes one at once when it resumes") {
  const TemporaryFolder folder;
  const auto lines = [&] {
    const std::string text = folder.text("telemetry.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  Telemetry telemetry({.device = c10::Device(c10::kCPU), .interval_s = 3600, .file = folder / "telemetry.jsonl"});
  const auto begin = Clock::now();
  for (int i = 0; i < 10000 && !telemetry.between(begin, Clock::now()).values[Metric::process_rss_mib]; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  telemetry.pause();
  const auto resumed = Clock::now();
  telemetry.resume();  // the interval is an hour, so only resume() can cause a second sample
  for (int i = 0; i < 10000 && lines() < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  telemetry.pause();
  const auto paused = Clock::now();
  CHECK(telemetry.between(resumed, paused).values[Metric::process_rss_mib].has_value());
  telemetry.stop();  // works while paused
  CHECK(lines() <= 2);
}

TEST_CASE("after restart_interval() earlier CPU time does not count") {
  const auto compute = [] {
    double sum = 0;
    for (const double until = process_cpu_seconds() + 0.2; process_cpu_seconds() < until;) sum += std::sqrt(sum + 1);
    return sum;
  };
  for (const bool restarted : {false, true}) {
    ProcessProbe probe;
    CHECK(compute() > 0);
    if (restarted) probe.restart_interval();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    Values values;
    probe.sample(values);
    const double core_pct = *values[Metric::cpu_util_pct] * allowed_cores();
    CHECK((core_pct > 5) != restarted);  // of half a core, on an idle machine
  }
}

TEST_CASE("stopping does not wait for a long interval") {
  const auto begin = Clock::now();
  { Telemetry telemetry({.interval_s = 3600}); }
  CHECK(seconds_since(begin) < 30);
}
