#include "metrics/hardware/gpu_probe.h"

#include "base/json.h"
#include "metrics/hardware/telemetry.h"
#include "support/captured_log.h"
#include "support/catch.h"
#include "support/fake_machine.h"

#include <cstdlib>

using namespace trainopt;
using trainopt::test::FakeMachine;

namespace {

constexpr const char* kBus = "00000000:41:00.0";
/// A busy GPU, as a script of tests/support/fake_nvml/script.h.
const std::string kBusyGpu =
    "driver 580.82.07\ngpu0.bus 00000000:41:00.0\ngpu0.utilization 97\ngpu0.used_mib 2048\ngpu0.reserved_mib "
    "512\ngpu0.power_mw 412500\n"
    "gpu0.sm_mhz 1830\ngpu0.clock_reasons 0\ngpu0.gpm 1\ngpu0.sm_util 61.5\ngpu0.tensor_util 33.25\n";

void wait_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

Values sample(GpuProbe& probe) {
  Values values;
  probe.sample(values);
  return values;
}

/// The second of two samples, which has GPM's values too.
Values full_sample(GpuProbe& probe) {
  sample(probe);
  wait_ms(120);
  return sample(probe);
}

std::string reason(const GpuProbe& probe, Metric metric) {
  const auto found = probe.reasons().find(std::string(info(metric).name));
  return found == probe.reasons().end() ? "" : found->second;
}

void check_all_absent(GpuProbe& probe, const std::string& why) {
  const Values values = full_sample(probe);
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

TEST_CASE("without NVML the GPU metrics are null and have a reason") {
  GpuProbe probe("libno-such-library.so.1", kBus);
  check_all_absent(probe, "libno-such-library.so.1 cannot be loaded");
  CHECK(!GpuProbe::driver_version("libno-such-library.so.1"));
}

TEST_CASE("a library that is not NVML gives a reason too") {
  GpuProbe probe("libc.so.6", kBus);
  check_all_absent(probe, "libc.so.6 lacks required functions");
  CHECK(!GpuProbe::driver_version("libc.so.6"));
}

TEST_CASE("every GPU metric is in its unit") {
  const FakeMachine machine(kBusyGpu);
  {
    GpuProbe probe(NEW_DRIVER, kBus);
    const Values first = sample(probe);
    CHECK(!first[Metric::gpu_sm_util_pct]);  // GPM measures the time between two samples
    wait_ms(120);
    const Values values = sample(probe);
    CHECK(values[Metric::gpu_util_pct] == 97.0);
    CHECK(values[Metric::gpu_memory_used_mib] == 2048.0);  // without the part that the driver reserves
    CHECK(values[Metric::gpu_power_w] == 412.5);
    CHECK(values[Metric::gpu_sm_clock_mhz] == 1830.0);
    CHECK(values[Metric::gpu_throttle] == 0.0);
    CHECK(values[Metric::gpu_sm_util_pct] == 61.5);
    CHECK(values[Metric::gpu_tensor_util_pct] == 33.25);
    CHECK(probe.reasons().empty());
    CHECK(GpuProbe::driver_version(NEW_DRIVER) == "580.82.07");
    CHECK(sample(probe)[Metric::gpu_sm_util_pct] == 61.5);  // too soon: the value of the last complete interval
  }
  CHECK(machine.calls("nvmlGpmSampleFree") == machine.calls("nvmlGpmSampleAlloc"));
  CHECK(machine.calls("nvmlShutdown") == machine.calls("nvmlInit_v2"));
}

TEST_CASE("an old driver has fewer metrics, with reasons for the missing ones") {
  const FakeMachine machine(kBusyGpu + "gpu0.clock_reasons 0x40\n");
  GpuProbe probe(OLD_DRIVER, kBus);
  const Values values = full_sample(probe);
  check_explained(probe, values);
  CHECK(values[Metric::gpu_memory_used_mib] == 2560.0);  // its only figure includes the reserved part
  CHECK(values[Metric::gpu_throttle] == 0.0);            // the script's first line for a name counts
  CHECK(machine.calls("nvmlDeviceGetCurrentClocksThrottleReasons") == 2);
  CHECK(reason(probe, Metric::gpu_sm_util_pct) == "this driver does not support GPM");
  CHECK(reason(probe, Metric::gpu_tensor_util_pct) == "this driver does not support GPM");
  CHECK(probe.reasons().size() == 2);
}

TEST_CASE("a GPU without GPM gives a reason and is not queried for it") {
  const FakeMachine machine("gpu0.gpm 0\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  check_explained(probe, full_sample(probe));
  CHECK_THAT(reason(probe, Metric::gpu_sm_util_pct), ContainsSubstring("this GPU does not support GPM"));
  CHECK(machine.calls("nvmlGpmSampleGet") == 0);
}

TEST_CASE("a single GPM metric may be missing and come back") {
  const FakeMachine machine("tensor_util.error 3\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  Values values = full_sample(probe);
  check_explained(probe, values);
  CHECK(values[Metric::gpu_sm_util_pct] == 61.5);
  CHECK(reason(probe, Metric::gpu_tensor_util_pct) == "GPM: Not Supported");
  machine.play(kBusyGpu);
  wait_ms(120);
  values = sample(probe);
  check_explained(probe, values);
  CHECK(values[Metric::gpu_tensor_util_pct] == 33.25);
}

TEST_CASE("GPM restarts after a pause, so that no value includes the pause") {
  const FakeMachine machine(kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  CHECK(full_sample(probe)[Metric::gpu_sm_util_pct] == 61.5);
  probe.restart_interval();
  wait_ms(120);
  CHECK(!sample(probe)[Metric::gpu_sm_util_pct]);
  wait_ms(120);
  CHECK(sample(probe)[Metric::gpu_sm_util_pct] == 61.5);
}

TEST_CASE("a query that is unsupported or not permitted is made only once") {
  for (const auto& [error, words] :
       {std::pair("3", "NVML: Not Supported"), std::pair("4", "NVML: Insufficient Permissions")}) {
    const FakeMachine machine("nvmlDeviceGetPowerUsage.error " + std::string(error) + "\n" + kBusyGpu);
    GpuProbe probe(NEW_DRIVER, kBus);
    sample(probe);
    const Values values = full_sample(probe);
    check_explained(probe, values);
    CHECK(reason(probe, Metric::gpu_power_w) == words);
    CHECK(probe.reasons().size() == 1);
    CHECK(machine.calls("nvmlDeviceGetPowerUsage") == 1);
    CHECK(machine.calls("nvmlDeviceGetClockInfo") == 3);
  }
}

TEST_CASE("a query that failed temporarily is retried, and its reason disappears on success") {
  const FakeMachine machine("nvmlDeviceGetPowerUsage.error 999\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  CHECK(!full_sample(probe)[Metric::gpu_power_w]);
  CHECK(reason(probe, Metric::gpu_power_w) == "NVML: Unknown Error");
  machine.play(kBusyGpu);
  CHECK(sample(probe)[Metric::gpu_power_w] == 412.5);
  CHECK(probe.reasons().empty());
}

TEST_CASE("if NVML's new memory function fails, the old one is used") {
  const FakeMachine machine("nvmlDeviceGetMemoryInfo_v2.error 25\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  CHECK(sample(probe)[Metric::gpu_memory_used_mib] == 2560.0);
}

TEST_CASE("only clock reasons that slow a GPU under load count as throttling") {
  // 0x1 idle, 0x2 application clocks, 0x10 sync boost and 0x100 display clocks are no throttling.
  const FakeMachine machine("gpu0.clock_reasons 0x1ff\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  CHECK(sample(probe)[Metric::gpu_throttle] == 4 + 8 + 32 + 64 + 128);
  machine.play("gpu0.clock_reasons 0x113\n" + kBusyGpu);
  CHECK(sample(probe)[Metric::gpu_throttle] == 0.0);
}

TEST_CASE("the GPU is found by its PCI bus id, whatever NVML's order") {
  const FakeMachine machine(
      kBusyGpu + "gpu1.bus 00000000:0A:00.0\ngpu1.utilization 5\ngpu1.power_mw 60000\ngpu1.gpm 1\ngpu1.sm_util 2\n");
  GpuProbe probe(NEW_DRIVER, "00000000:0A:00.0");
  const Values values = full_sample(probe);
  CHECK(values[Metric::gpu_util_pct] == 5.0);
  CHECK(values[Metric::gpu_power_w] == 60.0);
  CHECK(values[Metric::gpu_sm_util_pct] == 2.0);
  GpuProbe elsewhere(NEW_DRIVER, "00000000:99:00.0");
  check_all_absent(elsewhere, "NVML cannot find the GPU 00000000:99:00.0: Not Found");
}

TEST_CASE("a failed initialisation of NVML gives a reason") {
  const FakeMachine machine("nvmlInit_v2.error 9\n" + kBusyGpu);
  GpuProbe probe(NEW_DRIVER, kBus);
  check_all_absent(probe, "NVML cannot be initialised: Driver Not Loaded");
  CHECK(!GpuProbe::driver_version(NEW_DRIVER));
  CHECK(machine.calls() == machine.calls("nvmlInit_v2"));
}

TEST_CASE("a lost GPU is logged once and not queried again") {
  const FakeMachine machine(kBusyGpu);
  const CapturedLog log;
  GpuProbe probe(NEW_DRIVER, kBus);
  check_explained(probe, full_sample(probe));
  machine.play("gpu0.error 15\n" + kBusyGpu);
  const int64_t before = machine.calls();
  for (int i = 0; i < 3; ++i) check_all_absent(probe, "NVML: GPU is lost");
  CHECK(machine.calls() == before + 1);
  machine.play(kBusyGpu);  // it does not come back
  check_all_absent(probe, "NVML: GPU is lost");
  CHECK(machine.calls() == before + 1);
  CHECK(log.text() == "warning: the GPU is no longer measured: NVML: GPU is lost\n");
}

TEST_CASE("a GPU lost between the counters and GPM is logged once too") {
  const FakeMachine machine(kBusyGpu);
  const CapturedLog log;
  GpuProbe probe(NEW_DRIVER, kBus);
  sample(probe);
  machine.play("nvmlGpmSampleGet.error 15\n" + kBusyGpu);
  wait_ms(120);
  sample(probe);
  check_all_absent(probe, "NVML: GPU is lost");
  CHECK(log.lines() == 1);
}

TEST_CASE("telemetry continues when its GPU is lost, and gives the reason for missing values") {
  const FakeMachine machine(kBusyGpu);
  const TemporaryFolder folder;
  const CapturedLog log;
  Telemetry telemetry(
      {.interval_s = 0.02, .file = folder / "telemetry.jsonl", .nvml_library = NEW_DRIVER, .pci_bus_id = kBus});
  const auto power_since = [&](Clock::time_point begin) {
    return telemetry.between(begin, Clock::now()).values[Metric::gpu_power_w];
  };
  const auto begin = Clock::now();
  while (!power_since(begin) && seconds_since(begin) < 20) wait_ms(2);
  CHECK(power_since(begin) == 412.5);
  machine.play("gpu0.error 15\n" + kBusyGpu);
  while (!telemetry.reasons().contains("gpu_power_w") && seconds_since(begin) < 40) wait_ms(2);
  const auto lost = Clock::now();
  wait_ms(100);
  const Values values = telemetry.between(lost, Clock::now()).values;
  CHECK(!values[Metric::gpu_power_w]);
  CHECK(values[Metric::process_rss_mib].has_value());  // the other metrics continue
  telemetry.stop();
  for (const Metric metric : kGpuMetrics)
    CHECK(telemetry.reasons().at(std::string(info(metric).name)) == "NVML: GPU is lost");
  CHECK(log.lines() == 1);
  std::istringstream lines(folder.text("telemetry.jsonl"));
  std::string line;
  std::getline(lines, line);
  CHECK(Json::parse(line).at("gpu_power_w") == 412.5);
}

TEST_CASE("a slow library delays only the telemetry thread") {
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
    wait_ms(1);
  }
  CHECK(longest < 0.25);  // one call takes 0.3 s
  const auto stopped = Clock::now();
  telemetry.stop();
  CHECK(seconds_since(stopped) < 4.5);
  CHECK(log.text().empty());
}

TEST_CASE("a library that does not respond is abandoned") {
  const FakeMachine machine("slow_ms 3000\n" + kBusyGpu);
  const CapturedLog log;
  auto begin = Clock::now();
  {
    Telemetry telemetry({.stop_timeout_s = 0.2, .nvml_library = NEW_DRIVER, .pci_bus_id = kBus});
    while (machine.calls() == 0 && seconds_since(begin) < 60) wait_ms(2);
    begin = Clock::now();
  }
  CHECK(seconds_since(begin) < 2);
  CHECK(log.text() == "warning: telemetry is abandoned: the GPU's driver does not respond\n");
  machine.play(kBusyGpu);
  wait_ms(3200);  // lets the abandoned thread end
}
