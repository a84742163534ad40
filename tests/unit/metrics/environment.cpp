#include "metrics/hardware/environment.h"

#include "device/device.h"
#include "device/process.h"
#include "support/catch.h"
#include "support/fake_machine.h"

using namespace trainopt;
using trainopt::test::FakeMachine;

namespace {

/// Two GPUs with four NVLinks between them, and one that hangs on PCIe alone.
const std::string kThreeGpus =
    "driver 580.82.07\n"
    "gpu0.bus 00000000:1B:00.0\ngpu0.name NVIDIA-A100\ngpu0.uuid GPU-5b0c\ngpu0.pcie_generation 1\n"
    "gpu0.max_pcie_generation 4\ngpu0.pcie_width 8\ngpu0.max_pcie_width 16\ngpu0.nvlinks 4\ngpu0.nvlink_version 4\n"
    "gpu0.nvlink_mb_per_s 25000\ngpu0.nvlink_to 00000000:1C:00.0\ngpu0.ancestor 30\ngpu0.mig 0\ngpu0.ecc 1\n"
    "gpu0.persistence_mode 1\ngpu0.power_limit_mw 400000\n"
    "gpu1.bus 00000000:1C:00.0\ngpu1.nvlinks 4\ngpu1.nvlink_to 00000000:1B:00.0\n"
    "gpu2.bus 00000000:5D:00.0\ngpu2.pcie_generation 4\ngpu2.max_pcie_generation 4\n";

/// The GPUs that NVML lists; CUDA offers none on a machine without a GPU.
Json gpus_of(const std::string& driver, const std::filesystem::path& sys) {
  EnvironmentSources sources;
  sources.nvml_library = driver;
  sources.sys = sys;
  return environment({"1.2.3", "unknown"}, {}, sources).at("other_gpus");
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text << '\n';
}

}  // namespace

TEST_CASE("the environment has each GPU's links, neighbours and settings") {
  const FakeMachine machine(kThreeGpus);
  const TemporaryFolder sys;
  write(sys / "bus/pci/devices/0000:1b:00.0/local_cpulist", "0-23,48-71");
  write(sys / "bus/pci/devices/0000:1b:00.0/numa_node", "0");
  write(sys / "bus/pci/devices/0000:1c:00.0/numa_node", "-1");  // not known
  const Json gpus = gpus_of(NEW_DRIVER, sys.path());
  REQUIRE(gpus.size() == 3);
  const Json& first = gpus[0];
  CHECK(first.at("name") == "NVIDIA-A100");
  CHECK(first.at("uuid") == "GPU-5b0c");
  CHECK(first.at("pcie").at("generation") == 1);
  CHECK(first.at("pcie").at("max_generation") == 4);
  CHECK(first.at("pcie").at("width") == 8);
  CHECK(first.at("pcie").at("max_width") == 16);
  CHECK_THAT(first.at("pcie").at("note").get<std::string>(), ContainsSubstring("idle"));
  CHECK(first.at("nvlink") == Json{{"links", 4},
                                   {"version", "3.0"},
                                   {"link_gb_per_s", 25.0},
                                   {"total_gb_per_s", 100.0},
                                   {"to", {{"00000000:1C:00.0", 4}}}});
  CHECK(first.at("peers") == Json{{"00000000:1C:00.0", "NV4"}, {"00000000:5D:00.0", "PHB"}});
  CHECK(first.at("local_cpus") == "0-23,48-71");
  CHECK(first.at("numa_node") == 0);
  CHECK(first.at("mig") == false);
  CHECK(first.at("ecc") == true);
  CHECK(first.at("persistence_mode") == true);
  CHECK(first.at("power_limit_w") == 400.0);
  CHECK(first.at("not_known").empty());
  CHECK(gpus[1].at("numa_node").is_null());
  CHECK(gpus[2].at("nvlink").is_null());
  CHECK(gpus[2].at("ecc").is_null());
  CHECK(gpus[2].at("not_known").at("ecc") == "NVML: Not Supported");
  CHECK(gpus[2].at("not_known").at("nvlink") == "NVML: Not Supported");
  CHECK(gpus[2].at("peers").at("00000000:1B:00.0") == "SYS");
  CHECK(!gpus[2].at("pcie").contains("note"));
  CHECK(gpus[2].at("local_cpus").is_null());
}

TEST_CASE("GPUs behind a switch are connected by all their links to it") {
  const FakeMachine machine(
      "gpu0.bus 00000000:1B:00.0\ngpu0.nvlinks 18\ngpu0.nvlink_to switch\ngpu1.bus 00000000:1C:00.0\n"
      "gpu1.nvlinks 17\ngpu1.nvlink_to switch\n");
  const Json gpus = gpus_of(NEW_DRIVER, "/nowhere");
  CHECK(gpus.at(0).at("nvlink").at("to") == Json{{"switch", 18}});
  CHECK(gpus.at(0).at("peers").at("00000000:1C:00.0") == "NV17");
}

TEST_CASE("what a driver has no function for is null, with that reason") {
  const FakeMachine machine(kThreeGpus);
  const Json gpus = gpus_of(OLD_DRIVER, "/nowhere");
  REQUIRE(gpus.size() == 3);
  CHECK(gpus[0].at("mig").is_null());
  CHECK_THAT(gpus[0].at("not_known").at("mig").get<std::string>(), ContainsSubstring("has no function"));
  CHECK(gpus[0].at("nvlink").at("link_gb_per_s").is_null());
  CHECK_THAT(gpus[0].at("not_known").at("nvlink.link_gb_per_s").get<std::string>(), ContainsSubstring("no function"));
  CHECK(gpus[0].at("peers").at("00000000:1C:00.0") == "NV4");
  CHECK(gpus[0].at("ecc") == true);
}

TEST_CASE("a lost GPU is in the environment and its trouble") {
  const FakeMachine machine("gpu0.bus 00000000:1B:00.0\ngpu1.bus 00000000:1C:00.0\ngpu1.error 15\n");
  EnvironmentSources sources;
  sources.nvml_library = NEW_DRIVER;
  const Json json = environment({"1.2.3", "unknown"}, {}, sources);
  REQUIRE(json.at("other_gpus").size() == 2);
  CHECK(json.at("other_gpus")[1].at("nvidia_smi_index") == 1);
  CHECK_THAT(json.at("gpu_trouble").get<std::string>(), ContainsSubstring("lost a GPU") && ContainsSubstring("-i 1"));
}

TEST_CASE("InfiniBand ports are read from the kernel's tree") {
  const TemporaryFolder sys;
  CHECK(infiniband_ports(sys.path()) == Json::array());
  write(sys / "class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  write(sys / "class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  write(sys / "class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  write(sys / "class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand");
  CHECK(infiniband_ports(sys.path()) == Json::array({{{"device", "mlx5_0"},
                                                      {"port", "1"},
                                                      {"state", "ACTIVE"},
                                                      {"rate_gbit_per_s", 400.0},
                                                      {"link_layer", "InfiniBand"}},
                                                     {{"device", "mlx5_1"},
                                                      {"port", "1"},
                                                      {"state", "DOWN"},
                                                      {"rate_gbit_per_s", nullptr},
                                                      {"link_layer", nullptr}}}));
}

TEST_CASE("the environment has versions, hardware and reasons for missing metrics, but no host name") {
  EnvironmentSources sources;
  sources.nvml_library = "libno-such-library.so.1";
  const Json json = environment({"1.2.3", "0123456789ab+dirty"}, {{"gpu_util_pct", "the run uses no GPU"}}, sources);
  CHECK(json.at("schema_version") == 1);
  CHECK(json.at("trainopt") == "1.2.3");
  CHECK(json.at("commit") == "0123456789ab+dirty");
  CHECK_THAT(json.at("libtorch").get<std::string>(), Catch::Matchers::StartsWith("2."));
  CHECK(json.at("cpu").at("cores_allowed") == allowed_cores());
  CHECK(json.at("cpu").at("cores_online").get<int>() >= allowed_cores());
  CHECK(json.at("memory_mib").get<int64_t>() > 256);
  CHECK(json.at("gpus").size() == static_cast<size_t>(cuda_count()));
  CHECK(json.at("driver").is_null());
  CHECK(json.at("other_gpus").empty());
  if (cuda_count() == 0) CHECK(json.at("gpu_trouble").is_null());
  CHECK(json.contains("nccl"));
  CHECK(json.contains("driver_cuda"));
  CHECK_THAT(json.at("kernel").get<std::string>(), Catch::Matchers::StartsWith("Linux "));
  CHECK(json.at("not_measured") == Json{{"gpu_util_pct", "the run uses no GPU"}});
  CHECK(!json.contains("hostname"));
}
