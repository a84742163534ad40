#include "metrics/gpu_probe.h"

#include "base/json.h"
#include "metrics/telemetry.h"
#include "support/captured_log.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <cstdlib>

using namespace trainopt;

namespace {

constexpr const char* kBus = "00000000:41:00.0";
/// A GPU at work, as tests/support/fake_nvml/script.h writes it.
const std::string kBusyGpu =
    "driver 580.82.07\ngpu0.bus 00000000:41:00.0\ngpu0.utilization 97\ngpu0.used_mib 2048\ngpu0.reserved_mib "
    "512\ngpu0.power_mw 412500\n"
    "gpu0.sm_mhz 1830\ngpu0.clock_reasons 0\ngpu0.gpm 1\ngpu0.sm_util 61.5\ngpu0.tensor_util 33.25\n";

/// A machine that plays a script, which can change at any time.
class FakeMachine {
 public:
  explicit FakeMachine(const std::string& script) {
    play(script);
    ::setenv("FAKE_NVML_SCRIPT", (folder_ / "script").c_str(), 1);
  }
  ~FakeMachine() { ::unsetenv("FAKE_NVML_SCRIPT"); }
  void play(const std::string& script) const {
    std::ofstream(folder_ / "next") << script;
    std::filesystem::rename(folder_ / "next", folder_ / "script");
  }
  int64_t calls(const std::string& function = "") const {
    std::istringstream lines(folder_.text("script.calls"));
    int64_t count = 0;
    for (std::string line; std::getline(lines, line);) count += function.empty() || line == function;
    return count;
  }

 private:
  TemporaryFolder folder_;
};

void sleep_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

Values sample(GpuProbe& probe) {
  Values values;
  probe.sample(values);
  return values;
}

/// The second sample, which has what GPM says too.
Values whole_sample(GpuProbe& probe) {
  sample(probe);
  sleep_ms(120);
  return sample(probe);
}

std::string reason(const GpuProbe& probe, Metric metric) {
  const auto found = probe.reasons().find(std::string(info(metric).name));
  return found == probe.reasons().end() ? "" : found->second;
}

void check_all_absent(GpuProbe& probe, const std::string& why) {
  const Values values = whole_sample(probe);
  for (const Metric metric : kGpuMetrics) {
    INFO(info(metric).name);
    CHECK(!values[metric]);
    CHECK_THAT(reason(probe, metric), ContainsSubstring(why));
  }
}

/// Every metric has a value or a reason, never both and never neither.
void check_explained(const GpuProbe& probe, const Values& values) {
  for (const Metric metric : kGpuMetrics) {
    INFO(info(metric).name << ": " << reason(probe, metric));
    CHECK(values[metric].has_value() == reason(probe, metric).empty());
  }
}

}  // namespace

TEST_CASE("without NVML the GPU's numbers are null and have a reason") {
  GpuProbe probe("libno-such-library.so.1", kBus);
  check_all_absent(probe, "libno-such-library.so.1 is not here");
  CHECK(!GpuProbe::driver_version("libno-such-library.so.1"));
}

TEST_CASE("a library that is not NVML is a reason too") {
  GpuProbe probe("libc.so.6", kBus);
  check_all_absent(probe, "libc.so.6 lacks functions");
  CHECK(!GpuProbe::driver_version("libc.so.6"));
}

TEST_CASE("every number in its unit") {
  const FakeMachine machine(kBusyGpu);
  {
    GpuProbe probe(NEW_DRIVER, kBus);
    const Values first = sample(probe);
    CHECK(!first[Metric::gpu_sm_util_pct]);  // GPM is about the time between two looks
    sleep_ms(120);
    const Values values = sample(probe);
    CHECK(values[Metric::gpu_util_pct] == 97.0);
    CHECK(values[Metric::gpu_memory_used_mib] == 2048.0);  // without what the driver keeps for itself
    CHECK(values[Metric::gpu_power_w] == 412.5);
    CHECK(values[Metric::gpu_sm_clock_mhz] == 1830.0);
    CHECK(values[Metric::gpu_throttle] == 0.0);
    CHECK(values[Metric::gpu_sm_util_pct] == 61.5);
    CHECK(values[Metric::gpu_tensor_util_pct] == 33.25);
    CHECK(probe.reasons().empty());
    CHECK(GpuProbe::driver_version(NEW_DRIVER) == "580.82.07");
    CHECK(sample(probe)[Metric::gpu_sm_util_pct] == 61.5);  // soon after: that of the last whole stretch
  }
  CHECK(machine.calls("nvmlGpmSampleFree") == machine.calls("nvmlGpmSampleAlloc"));
  CHECK(machine.calls("nvmlShutdown") == machine.calls("nvmlInit_v2"));
}

TEST_CASE("an old driver has fewer numbers, and says which") {
  const FakeMachine machine(kBusyGpu + "gpu0.clock_reasons 0x40\n");
  GpuProbe probe(OLD_DRIVER, kBus);
  const Values values = whole_sample(probe);
  check_explained(probe, values);
  CHECK(values[Metric::gpu_memory_used_mib] == 2560.0);  // its one number has the reserved part in it
  CHECK(values[Metric::gpu_throttle] == 0.0);            // the script's first line of a name holds
  CHECK(machine.calls("nvmlDeviceGetCurrentClocksThrottleReasons") == 2);
  CHECK(reason(probe, Metric::gpu_sm_util_pct) == "this driver has no GPM");
  CHECK(reason(probe, Metric::gpu_tensor_util_pct) == "this driver has no GPM");
  CHECK(probe.reasons().size() == 2);
}

TEST_CASE("a GPU without GPM") {
  const FakeMachine machine("gpu0.gpm 0\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  check_explained(probe, whole_sample(probe));
  CHECK_THAT(reason(probe, Metric::gpu_sm_util_pct), ContainsSubstring("this GPU has no GPM"));
  CHECK(machine.calls("nvmlGpmSampleGet") == 0);
}

TEST_CASE("one of GPM's numbers may be missing, and come back") {
  const FakeMachine machine("tensor_util.error 3\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  Values values = whole_sample(probe);
  check_explained(probe, values);
  CHECK(values[Metric::gpu_sm_util_pct] == 61.5);
  CHECK(reason(probe, Metric::gpu_tensor_util_pct) == "GPM: Not Supported");
  machine.play(kBusyGpu);
  sleep_ms(120);
  values = sample(probe);
  check_explained(probe, values);
  CHECK(values[Metric::gpu_tensor_util_pct] == 33.25);
}

TEST_CASE("after a pause GPM starts anew, so that the pause is in no number") {
  const FakeMachine machine(kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  CHECK(whole_sample(probe)[Metric::gpu_sm_util_pct] == 61.5);
  probe.begin_stretch();
  sleep_ms(120);
  CHECK(!sample(probe)[Metric::gpu_sm_util_pct]);
  sleep_ms(120);
  CHECK(sample(probe)[Metric::gpu_sm_util_pct] == 61.5);
}

TEST_CASE("what a GPU does not support, or this user may not see, is asked once") {
  for (const auto& [error, words] :
       {std::pair("3", "NVML: Not Supported"), std::pair("4", "NVML: Insufficient Permissions")}) {
    const FakeMachine machine("nvmlDeviceGetPowerUsage.error " + std::string(error) + "\n" + kBusyGpu);
    GpuProbe probe(NEW_DRIVER, kBus);
    sample(probe);
    const Values values = whole_sample(probe);
    check_explained(probe, values);
    CHECK(reason(probe, Metric::gpu_power_w) == words);
    CHECK(probe.reasons().size() == 1);
    CHECK(machine.calls("nvmlDeviceGetPowerUsage") == 1);
    CHECK(machine.calls("nvmlDeviceGetClockInfo") == 3);
  }
}

TEST_CASE("a failure that may pass is asked again, and its reason goes with it") {
  const FakeMachine machine("nvmlDeviceGetPowerUsage.error 999\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  CHECK(!whole_sample(probe)[Metric::gpu_power_w]);
  CHECK(reason(probe, Metric::gpu_power_w) == "NVML: Unknown Error");
  machine.play(kBusyGpu);
  CHECK(sample(probe)[Metric::gpu_power_w] == 412.5);
  CHECK(probe.reasons().empty());
}

TEST_CASE("memory's new function may fail where its old one answers") {
  const FakeMachine machine("nvmlDeviceGetMemoryInfo_v2.error 25\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  CHECK(sample(probe)[Metric::gpu_memory_used_mib] == 2560.0);
}

TEST_CASE("of the reasons that set the clock, those which hold it down in spite of work are kept") {
  // 0x1 idle, 0x2 application clocks, 0x10 sync boost and 0x100 display clocks are nobody's fault.
  const FakeMachine machine("gpu0.clock_reasons 0x1ff\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  CHECK(sample(probe)[Metric::gpu_throttle] == 4 + 8 + 32 + 64 + 128);
  machine.play("gpu0.clock_reasons 0x113\n" + kBusyGpu);
  CHECK(sample(probe)[Metric::gpu_throttle] == 0.0);
}

TEST_CASE("the GPU is found by its place on the bus, whatever NVML's order") {
  const FakeMachine machine(
      kBusyGpu + "gpu1.bus 00000000:0A:00.0\ngpu1.utilization 5\ngpu1.power_mw 60000\ngpu1.gpm 1\ngpu1.sm_util 2\n");
  GpuProbe probe(NEW_DRIVER, "00000000:0A:00.0");
  const Values values = whole_sample(probe);
  CHECK(values[Metric::gpu_util_pct] == 5.0);
  CHECK(values[Metric::gpu_power_w] == 60.0);
  CHECK(values[Metric::gpu_sm_util_pct] == 2.0);
  GpuProbe elsewhere(NEW_DRIVER, "00000000:99:00.0");
  check_all_absent(elsewhere, "NVML does not know the GPU 00000000:99:00.0: Not Found");
}

TEST_CASE("NVML that does not start is a reason") {
  const FakeMachine machine("nvmlInit_v2.error 9\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  check_all_absent(probe, "NVML does not start: Driver Not Loaded");
  CHECK(!GpuProbe::driver_version(NEW_DRIVER));
  CHECK(machine.calls() == machine.calls("nvmlInit_v2"));
}

TEST_CASE("a GPU that is lost costs one log line and is not asked again") {
  const FakeMachine machine(kBusyGpu);
  const CapturedLog log;
  GpuProbe probe(NEW_DRIVER, kBus);
  check_explained(probe, whole_sample(probe));
  machine.play("gpu0.error 15\n" + kBusyGpu);
  const int64_t before = machine.calls();
  for (int i = 0; i < 3; ++i) check_all_absent(probe, "NVML: GPU is lost");
  CHECK(machine.calls() == before + 1);
  machine.play(kBusyGpu);  // it does not come back
  check_all_absent(probe, "NVML: GPU is lost");
  CHECK(machine.calls() == before + 1);
  CHECK(log.text() == "warning: the GPU is measured no more: NVML: GPU is lost\n");
}

TEST_CASE("a GPU that is lost between the counters and GPM") {
  const FakeMachine machine(kBusyGpu);
  const CapturedLog log;
  GpuProbe probe(NEW_DRIVER, kBus);
  sample(probe);
  machine.play("nvmlGpmSampleGet.error 15\n" + kBusyGpu);
  sleep_ms(120);
  sample(probe);
  check_all_absent(probe, "NVML: GPU is lost");
  CHECK(log.lines() == 1);
}

TEST_CASE("telemetry watches a GPU, outlives its loss, and says why it is silent") {
  const FakeMachine machine(kBusyGpu);
  const TemporaryFolder folder;
  const CapturedLog log;
  Telemetry telemetry(
      {.interval_s = 0.02, .file = folder / "telemetry.jsonl", .nvml_library = NEW_DRIVER, .pci_bus_id = kBus});
  const auto power_since = [&](Clock::time_point begin) {
    return telemetry.between(begin, Clock::now()).values[Metric::gpu_power_w];
  };
  const auto begin = Clock::now();
  while (!power_since(begin) && seconds_since(begin) < 20) sleep_ms(2);
  CHECK(power_since(begin) == 412.5);
  machine.play("gpu0.error 15\n" + kBusyGpu);
  while (!telemetry.reasons().contains("gpu_power_w") && seconds_since(begin) < 40) sleep_ms(2);
  const auto lost = Clock::now();
  sleep_ms(100);
  const Values values = telemetry.between(lost, Clock::now()).values;
  CHECK(!values[Metric::gpu_power_w]);
  CHECK(values[Metric::process_rss_mib].has_value());  // the rest goes on
  telemetry.stop();
  for (const Metric metric : kGpuMetrics)
    CHECK(telemetry.reasons().at(std::string(info(metric).name)) == "NVML: GPU is lost");
  CHECK(log.lines() == 1);
  std::istringstream lines(folder.text("telemetry.jsonl"));
  std::string line;
  std::getline(lines, line);
  CHECK(Json::parse(line).at("gpu_power_w") == 412.5);
}

TEST_CASE("a library that takes its time holds up nobody but its own thread") {
  const FakeMachine machine("slow_ms 300\n" + kBusyGpu);
  const CapturedLog log;
  Telemetry telemetry({.interval_s = 0.01, .nvml_library = NEW_DRIVER, .pci_bus_id = kBus});
  const auto begin = Clock::now();
  double longest = 0;
  while (seconds_since(begin) < 0.8) {
    StepRecord row;
    row.began = begin;
    row.ended = Clock::now();
    telemetry.fill(row);
    telemetry.reasons();
    longest = std::max(longest, seconds_since(row.ended));
    sleep_ms(1);
  }
  CHECK(longest < 0.25);  // one call takes 0.3 s
  const auto stopped = Clock::now();
  telemetry.stop();
  CHECK(seconds_since(stopped) < 4.5);
  CHECK(log.text().empty());
}

TEST_CASE("a library that does not answer is left behind") {
  const FakeMachine machine("slow_ms 3000\n" + kBusyGpu);
  const CapturedLog log;
  auto begin = Clock::now();
  {
    Telemetry telemetry({.patience_s = 0.2, .nvml_library = NEW_DRIVER, .pci_bus_id = kBus});
    while (machine.calls() == 0 && seconds_since(begin) < 60) sleep_ms(2);
    begin = Clock::now();
  }
  CHECK(seconds_since(begin) < 2);
  CHECK(log.text() == "warning: telemetry is left behind: the GPU's driver does not answer\n");
  machine.play(kBusyGpu);
  sleep_ms(3200);  // it goes on when nobody waits any more
}
