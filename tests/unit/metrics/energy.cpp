#include "metrics/hardware/energy.h"
#include "metrics/hardware/nvml.h"
#include "metrics/hardware/telemetry.h"
#include "support/catch.h"
#include "support/fake_machine.h"

using namespace trainopt;
using trainopt::test::FakeMachine;

namespace {

constexpr const char *kFirstGpu = "00000000:41:00.0", *kSecondGpu = "00000000:0A:00.0";

/// A folder like /sys/class/powercap.
class FakePowercap {
 public:
  void domain(const std::string& name, const std::string& what, uint64_t microjoules, uint64_t range = 262143328850) {
    std::filesystem::create_directory(folder_ / name);
    std::ofstream(folder_ / name / "name") << what << "\n";
    std::ofstream(folder_ / name / "max_energy_range_uj") << range << "\n";
    energy(name, microjoules);
  }
  void energy(const std::string& name, uint64_t microjoules) {
    std::ofstream(folder_ / name / "energy_uj") << microjoules << "\n";
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

EnergyOptions only_cpus(const FakePowercap& powercap) { return {.powercap = powercap.path()}; }

std::shared_ptr<const NvmlLibrary> driver(const std::string& name) { return std::make_shared<const NvmlLibrary>(name); }

Clock::time_point second(double seconds) {
  return Clock::time_point() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string two_gpus(uint64_t first_mj, uint64_t second_mj) {
  return fmt::format("gpu0.bus {}\ngpu0.energy_mj {}\ngpu1.bus {}\ngpu1.energy_mj {}\n", kFirstGpu, first_mj,
                     kSecondGpu, second_mj);
}

StepRecord step_with(int64_t samples, std::optional<double> joules) {
  StepRecord row;
  row.step_samples = samples;
  row[Metric::energy_j] = joules;
  return row;
}

}  // namespace

TEST_CASE("a reading of a CPU package is in joules and covers at least a second") {
  FakePowercap powercap;
  powercap.domain("intel-rapl:0", "package-0", 5'000'000);
  EnergyMeter meter(only_cpus(powercap));
  CHECK(meter.source()->kind == "cpu");
  CHECK(meter.source()->text == "1 whole CPU package, other programs included");
  CHECK(!meter.sample(second(10)));
  CHECK(!meter.reason().empty());
  powercap.energy("intel-rapl:0", 17'500'000);
  CHECK(!meter.sample(second(10.9)));
  CHECK(meter.sample(second(11)) == Approx(12.5));
  CHECK(meter.reason().empty());
  CHECK(!meter.sample(second(11.5)));
  powercap.energy("intel-rapl:0", 18'500'000);
  CHECK(meter.sample(second(14)) == Approx(1.0));
}

TEST_CASE("a package's counter that starts again at 0 loses nothing") {
  FakePowercap powercap;
  powercap.domain("intel-rapl:0", "package-0", 999'000'000, 1'000'000'000);
  EnergyMeter meter(only_cpus(powercap));
  meter.sample(second(0));
  powercap.energy("intel-rapl:0", 3'000'000);
  CHECK(meter.sample(second(1)) == Approx(4.0));
}

TEST_CASE("packages are added up; their parts, the platform and copies of packages are left out") {
  FakePowercap powercap;
  const std::vector<std::pair<std::string, std::string>> domains{
      {"intel-rapl:0", "package-0"}, {"intel-rapl:1", "package-1"}, {"intel-rapl:2", "psys"},
      {"intel-rapl:0:0", "core"},    {"intel-rapl:0:1", "dram"},    {"intel-rapl-mmio:0", "package-0"},
      {"dtpm", "package-0"},
  };
  for (const auto& [folder, name] : domains) powercap.domain(folder, name, 0);
  EnergyMeter meter(only_cpus(powercap));
  CHECK(meter.source()->text == "2 whole CPU packages, other programs included");
  meter.sample(second(0));
  for (const auto& [folder, name] : domains) powercap.energy(folder, 7'000'000);
  CHECK(meter.sample(second(2)) == Approx(14.0));
}

TEST_CASE("a counter that may not be read is a reason") {
  FakePowercap powercap;
  powercap.domain("intel-rapl:0", "package-0", 1);
  std::filesystem::remove(powercap.path() / "intel-rapl:0/energy_uj");
  std::filesystem::create_directory(powercap.path() / "intel-rapl:0/energy_uj");  // root may read every file
  EnergyMeter meter(only_cpus(powercap));
  CHECK(!meter.source());
  CHECK_THAT(meter.reason(), ContainsSubstring("intel-rapl:0/energy_uj: Is a directory"));
  CHECK(!meter.sample(second(0)));
  CHECK(!meter.sample(second(2)));

  EnergyMeter nothing({.powercap = "/nowhere"});
  CHECK(!nothing.source());
  CHECK(nothing.reason() == "/nowhere has no energy counter of a CPU package");
}

TEST_CASE("a counter that cannot be read for a while costs readings, no energy") {
  FakePowercap powercap;
  powercap.domain("intel-rapl:0", "package-0", 0);
  EnergyMeter meter(only_cpus(powercap));
  meter.sample(second(0));
  std::filesystem::remove(powercap.path() / "intel-rapl:0/energy_uj");
  CHECK(!meter.sample(second(1)));
  CHECK_THAT(meter.reason(), ContainsSubstring("No such file"));
  powercap.energy("intel-rapl:0", 30'000'000);
  CHECK(meter.sample(second(3)) == Approx(30.0));
  CHECK(meter.reason().empty());
}

TEST_CASE("over more than a minute a package's counter is not trusted") {
  FakePowercap powercap;
  powercap.domain("intel-rapl:0", "package-0", 0);
  EnergyMeter meter(only_cpus(powercap));
  meter.sample(second(0));
  powercap.energy("intel-rapl:0", 1'000'000);
  CHECK(!meter.sample(second(61)));
  CHECK_THAT(meter.reason(), ContainsSubstring("telemetry.interval"));
  powercap.energy("intel-rapl:0", 3'000'000);
  CHECK(meter.sample(second(62)) == Approx(2.0));
}

TEST_CASE("a pause is in no reading") {
  FakePowercap powercap;
  powercap.domain("intel-rapl:0", "package-0", 0);
  EnergyMeter meter(only_cpus(powercap));
  meter.sample(second(0));
  meter.restart_interval();
  powercap.energy("intel-rapl:0", 50'000'000);
  CHECK(!meter.sample(second(10)));
  powercap.energy("intel-rapl:0", 51'000'000);
  CHECK(meter.sample(second(11)) == Approx(1.0));
}

TEST_CASE("two GPUs are added up, with and without CPUs") {
  const FakeMachine machine(two_gpus(1000, 500));
  const EnergyOptions gpus{.pci_bus_ids = {kFirstGpu, kSecondGpu}, .nvml = driver(NEW_DRIVER), .powercap = "/nowhere"};
  EnergyMeter meter(gpus);
  CHECK(meter.source()->kind == "gpu");
  CHECK(meter.source()->text == "2 GPUs; without the CPU: /nowhere has no energy counter of a CPU package");
  meter.sample(second(0));
  machine.play(two_gpus(701'000, 300'500));
  CHECK(meter.sample(second(1)) == Approx(1000.0));

  FakePowercap powercap;
  powercap.domain("intel-rapl:0", "package-0", 0);
  EnergyOptions both = gpus;
  both.powercap = powercap.path();
  EnergyMeter of_both(both);
  CHECK(of_both.source()->kind == "both");
  CHECK(of_both.source()->text == "2 GPUs and 1 whole CPU package, other programs included");
  of_both.sample(second(0));
  machine.play(two_gpus(702'000, 300'500));
  powercap.energy("intel-rapl:0", 2'500'000);
  CHECK(of_both.sample(second(1)) == Approx(3.5));
}

TEST_CASE("with one GPU's counter missing no GPU is included, and the reason is given") {
  const FakeMachine machine(fmt::format("gpu0.bus {}\ngpu0.energy_mj 5\ngpu1.bus {}\n", kFirstGpu, kSecondGpu));
  FakePowercap powercap;
  powercap.domain("intel-rapl:0", "package-0", 0);
  const EnergyMeter meter(
      {.pci_bus_ids = {kFirstGpu, kSecondGpu}, .nvml = driver(NEW_DRIVER), .powercap = powercap.path()});
  CHECK(meter.source()->kind == "cpu");
  CHECK(meter.source()->text == "1 whole CPU package, other programs included; without the GPU: NVML: Not Supported");
  const EnergyMeter without_driver(
      {.pci_bus_ids = {kFirstGpu}, .nvml = driver("libno-such-library.so.1"), .powercap = "/nowhere"});
  CHECK(!without_driver.source());
  CHECK_THAT(without_driver.reason(), ContainsSubstring("libno-such-library.so.1 cannot be loaded") &&
                                          ContainsSubstring("/nowhere has no energy counter"));
}

TEST_CASE("samples are counted from the first reading to the last") {
  EnergySums sums;
  for (const auto& row : {step_with(8, {}), step_with(8, 100.0), step_with(8, {}), step_with(8, 30.0),
                          step_with(8, 20.0), step_with(8, {})})
    sums.add(row);
  CHECK(sums.joules() == 50);  // the first reading began before the first step
  CHECK(sums.samples() == 24);
}

TEST_CASE("sums of two parts of a run are the sum of the whole, wherever it is divided") {
  const std::vector<StepRecord> rows{step_with(1, {}),  step_with(2, 10.0), step_with(4, {}),
                                     step_with(8, 5.0), step_with(16, {}),  step_with(32, 3.0)};
  for (size_t divided = 0; divided <= rows.size(); ++divided) {
    EnergySums first, second;
    for (size_t i = 0; i < rows.size(); ++i) (i < divided ? first : second).add(rows[i]);
    first.add(second);
    CHECK(first.joules() == 8);
    CHECK(first.samples() == 60);
  }
}

TEST_CASE("the GPUs whose energy counts may be more than the one that is sampled") {
  const FakeMachine machine(two_gpus(1000, 500));
  const auto source = [](std::vector<std::string> energy_gpus) {
    Telemetry telemetry({.nvml_library = NEW_DRIVER,
                         .pci_bus_id = kFirstGpu,
                         .energy_gpus = std::move(energy_gpus),
                         .powercap = "/nowhere"});
    const auto begin = Clock::now();
    while (!telemetry.energy_source() && seconds_since(begin) < 20)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return telemetry.energy_source().value_or(EnergySource{}).text;
  };
  CHECK_THAT(source({}), Catch::Matchers::StartsWith("1 GPU;"));
  CHECK_THAT(source({kFirstGpu, kSecondGpu}), Catch::Matchers::StartsWith("2 GPUs;"));
}

TEST_CASE("every reading of the telemetry thread is in exactly one row") {
  FakePowercap powercap;
  powercap.domain("intel-rapl:0", "package-0", 0);
  TemporaryFolder folder;
  Telemetry telemetry({.interval_s = 0.02, .file = folder / "telemetry.jsonl", .powercap = powercap.path()});
  const auto begin = Clock::now();
  while (!telemetry.energy_source() && seconds_since(begin) < 20)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  REQUIRE(telemetry.energy_source());
  double joules = 0;
  auto ended = begin;
  uint64_t microjoules = 0;
  for (int readings = 0; readings < 2 && seconds_since(begin) < 30;) {
    powercap.energy("intel-rapl:0", microjoules += 1'000'000);
    StepRecord row;
    row.began = ended;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    row.ended = ended = Clock::now();
    telemetry.fill(row);
    if (!row[Metric::energy_j]) continue;
    ++readings;
    joules += *row[Metric::energy_j];
  }
  telemetry.stop();
  CHECK(joules >= 2);
  CHECK(joules <= static_cast<double>(microjoules) * 1e-6);
  CHECK(!telemetry.reasons().contains("energy_j"));
  CHECK_THAT(folder.text("telemetry.jsonl"),
             ContainsSubstring("\"energy_j\":null") && ContainsSubstring("\"energy_j\":1"));
}
