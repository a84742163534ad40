#include "metrics/hardware/gpu_trouble.h"

#include "device/gpu_error.h"
#include "metrics/hardware/nvml.h"
#include "support/catch.h"
#include "support/fake_machine.h"

#include <unistd.h>

using namespace trainopt;
using trainopt::test::FakeMachine;

namespace {

/// A machine with one healthy GPU that CUDA does not offer, for the reason `problem`.
GpuEvidence evidence_of(GpuProblem problem, const std::string& error = "CUDA's words") {
  GpuEvidence evidence;
  evidence.cuda.built_for_cuda = true;
  evidence.cuda.program_cuda = 13000;
  evidence.cuda.libtorch_cuda = 13000;
  evidence.cuda.driver_cuda = 13000;
  evidence.cuda.problem = problem;
  evidence.cuda.error = error;
  evidence.device_files = {"/dev/nvidia0", "/dev/nvidiactl"};
  SeenGpu gpu;
  gpu.name = "NVIDIA H100";
  gpu.uuid = "GPU-5b0c";
  gpu.pci_bus_id = "00000000:1B:00.0";
  evidence.gpus = {gpu};
  return evidence;
}

DeviceFacts h100() {
  DeviceFacts facts;
  facts.name = "NVIDIA H100";
  facts.sm_major = 9;
  facts.pci_bus_id = "00000000:1B:00.0";
  return facts;
}

void check_sentence(const std::string& sentence, const std::vector<std::string>& expected) {
  INFO(sentence);
  for (const auto& words : expected) CHECK_THAT(sentence, ContainsSubstring(words));
  CHECK(sentence.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("a build without CUDA says so where there is a GPU") {
  GpuEvidence evidence = evidence_of(GpuProblem::none);
  evidence.cuda = {};
  CHECK_THAT(gpu_trouble(evidence), ContainsSubstring("built without CUDA") &&
                                        ContainsSubstring("scripts/setup --cuda") && ContainsSubstring("NVIDIA H100"));
  evidence.gpus.clear();
  CHECK_THAT(gpu_trouble(evidence),
             ContainsSubstring("built without CUDA") && ContainsSubstring("/dev/nvidia0 exists"));
  evidence.device_files.clear();
  CHECK(gpu_trouble(evidence).empty());
}

TEST_CASE("a library for GPUs that cannot be opened is why there is no GPU") {
  GpuEvidence evidence = evidence_of(GpuProblem::none);
  evidence.cuda = {.built_for_cuda = true, .library_problem = "trainopt's library for GPUs is missing"};
  CHECK(gpu_trouble(evidence) == "trainopt's library for GPUs is missing");
}

TEST_CASE("there is nothing to say without a driver, without CUDA, and where a GPU works") {
  CHECK(gpu_trouble({}) == "");
  GpuEvidence none = evidence_of(GpuProblem::none);
  CHECK(gpu_trouble(none) == "");
  CHECK(trouble_with(h100(), none) == "");
  CHECK(caution_about(h100(), none) == "");
  none.cuda.driver_cuda = 0;
  none.device_files.clear();
  CHECK(gpu_trouble(none) == "");
}

TEST_CASE("CUDA's own error says what to do where nothing else is known") {
  check_sentence(gpu_trouble(evidence_of(GpuProblem::not_ready)), {"offers no GPU (CUDA's words)", "Fabric Manager"});
  check_sentence(gpu_trouble(evidence_of(GpuProblem::version_mismatch)), {"kernel module differ", "restart"});
  check_sentence(gpu_trouble(evidence_of(GpuProblem::stub_library)), {"stub", "LD_LIBRARY_PATH"});
  check_sentence(gpu_trouble(evidence_of(GpuProblem::mps)), {"Multi-Process Service"});
  check_sentence(gpu_trouble(evidence_of(GpuProblem::busy)), {"end the process that uses it", "nvidia-smi -c DEFAULT"});
  check_sentence(gpu_trouble(evidence_of(GpuProblem::no_gpu)), {"nvidia-smi lists a GPU", "--gpus"});
  check_sentence(gpu_trouble(evidence_of(GpuProblem::no_permission)), {"/dev/nvidia*"});
  check_sentence(gpu_trouble(evidence_of(GpuProblem::other)), {"nvidia-smi works", "restart"});
}

TEST_CASE("an old driver and a libtorch for another CUDA are named with both versions") {
  GpuEvidence evidence = evidence_of(GpuProblem::old_driver);
  evidence.cuda.driver_cuda = 12080;
  check_sentence(gpu_trouble(evidence), {"too old", "supports CUDA 12.8", "needs 13.0", "driver 580 or newer"});
  evidence.cuda.libtorch_cuda = 12060;
  check_sentence(gpu_trouble(evidence), {"libtorch found was built for CUDA 12.6", "for CUDA 13.0", "install"});
  check_sentence(trouble_with(h100(), evidence), {"built for CUDA 12.6"});
  evidence.cuda = evidence_of(GpuProblem::none).cuda;
  evidence.cuda.libtorch_cuda = 13010;  // releases with one first number fit each other
  CHECK(gpu_trouble(evidence) == "");
}

TEST_CASE("CUDA_VISIBLE_DEVICES that hides all GPUs is shown with its value") {
  for (const char* value : {"", "-1", "7", "GPU-ffff"}) {
    GpuEvidence evidence = evidence_of(GpuProblem::no_gpu);
    evidence.visible_devices = value;
    check_sentence(gpu_trouble(evidence),
                   {"hides all GPUs; unset it", *value ? std::string("CUDA_VISIBLE_DEVICES=") + value : "=\"\""});
  }
  for (const char* value : {"", "-1", "1", "1,0", "GPU-ffff"}) {  // whatever CUDA's error
    GpuEvidence evidence = evidence_of(GpuProblem::other);
    evidence.visible_devices = value;
    check_sentence(gpu_trouble(evidence), {"hides all GPUs"});
  }
  GpuEvidence empty = evidence_of(GpuProblem::no_gpu);
  empty.gpus.clear();
  empty.visible_devices = "0";  // there is nothing to hide
  check_sentence(gpu_trouble(empty), {"offers no GPU"});
}

TEST_CASE("CUDA_VISIBLE_DEVICES that names a GPU is not blamed for CUDA's own error") {
  for (const char* value : {"0", "0,1", "0,-1", "GPU-5b0c", "GPU-5b", "MIG-5b0c"}) {
    for (const auto& [problem, words] : {std::pair(GpuProblem::no_permission, "/dev/nvidia*"),
                                         {GpuProblem::busy, "end the process that uses it"},
                                         {GpuProblem::other, "nvidia-smi works"}}) {
      GpuEvidence evidence = evidence_of(problem);
      evidence.visible_devices = value;
      check_sentence(gpu_trouble(evidence), {"offers no GPU (CUDA's words)", words});
      CHECK(gpu_trouble(evidence).find("CUDA_VISIBLE_DEVICES") == std::string::npos);
    }
  }
}

TEST_CASE("missing permission, MIG without instances, a lost GPU and a forbidding mode are told apart") {
  GpuEvidence evidence = evidence_of(GpuProblem::no_gpu);
  evidence.visible_devices = "0";
  evidence.gpus[0].mig = true;
  check_sentence(gpu_trouble(evidence), {"MIG mode and has no instance", "nvidia-smi mig -i 0", "GPU-5b0c"});
  evidence.gpus[0].mig_instances = 2;
  check_sentence(gpu_trouble(evidence), {"CUDA_VISIBLE_DEVICES=0"});
  evidence.gpus[0].prohibited = true;
  check_sentence(gpu_trouble(evidence), {"compute mode allows no process", "-c DEFAULT"});
  evidence.gpus[0].lost = "GPU is lost";
  check_sentence(gpu_trouble(evidence), {"lost a GPU", "dmesg", "--gpu-reset -i 0", "NVML: GPU is lost"});
  CHECK(lost_gpus(evidence).size() == 1);
  evidence.forbidden_files = {"/dev/nvidia0"};
  check_sentence(gpu_trouble(evidence), {"may not open", "permission", "docker run --gpus all", "/dev/nvidia0"});
}

TEST_CASE("a job that may open only some GPUs is not without permission") {
  GpuEvidence evidence = evidence_of(GpuProblem::other);
  evidence.device_files = {"/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"};
  evidence.forbidden_files = {"/dev/nvidia1"};
  check_sentence(gpu_trouble(evidence), {"offers no GPU (CUDA's words)", "nvidia-smi works"});
  evidence.forbidden_files = {"/dev/nvidia0", "/dev/nvidia1"};
  check_sentence(gpu_trouble(evidence), {"may not open", "/dev/nvidia0, /dev/nvidia1"});
  for (const char* common : {"/dev/nvidia-uvm", "/dev/nvidiactl"}) {
    evidence.forbidden_files = {common};
    check_sentence(gpu_trouble(evidence), {"may not open", common});
  }
}

TEST_CASE("a driver without its library is not the same as no driver") {
  GpuEvidence evidence = evidence_of(GpuProblem::none);
  evidence.cuda.driver_cuda = 0;
  check_sentence(gpu_trouble(evidence), {"libcuda.so.1 is missing", "install", "/dev/nvidia0"});
}

TEST_CASE("trouble and cautions of one GPU that CUDA offers") {
  GpuEvidence evidence = evidence_of(GpuProblem::none);
  DeviceFacts old = h100();
  old.sm_major = 7;
  check_sentence(trouble_with(old, evidence), {"too old", "sm_70", "from sm_75", "device: cpu"});
  SeenGpu& gpu = evidence.gpus[0];
  gpu.exclusive = true;
  CHECK(caution_about(h100(), evidence) == "");  // nobody uses it
  gpu.processes = {4242};
  check_sentence(caution_about(h100(), evidence), {"exclusive mode and in use", "process 4242", "-c DEFAULT"});
  CHECK(trouble_with(h100(), evidence) == "");  // the Multi-Process Service may let this process in
  gpu.exclusive = false;
  gpu.mig = true;
  check_sentence(caution_about(h100(), evidence), {"MIG instance", "one rank"});
  gpu.prohibited = true;
  check_sentence(trouble_with(h100(), evidence), {"allows no process"});
  gpu.lost = "GPU is lost";
  check_sentence(trouble_with(h100(), evidence), {"lost a GPU"});
}

TEST_CASE("NVML's view of the GPUs is gathered") {
  const FakeMachine machine(
      "gpu0.bus 00000000:1B:00.0\ngpu0.name NVIDIA-A100\ngpu0.uuid GPU-5b0c\ngpu0.mig 1\ngpu0.mig_instances 2\n"
      "gpu0.compute_mode 3\ngpu0.process 4242\ngpu1.bus 00000000:1C:00.0\ngpu1.error 15\ngpu2.bus 00000000:1D:00.0\n"
      "gpu2.compute_mode 2\n");
  const auto gpus = seen_gpus(NvmlLibrary(NEW_DRIVER));
  REQUIRE(gpus.size() == 3);
  CHECK(gpus[0].name == "NVIDIA-A100");
  CHECK(gpus[0].uuid == "GPU-5b0c");
  CHECK(gpus[0].pci_bus_id == "00000000:1B:00.0");
  CHECK((gpus[0].mig == true && gpus[0].mig_instances == 2));
  CHECK((gpus[0].exclusive && gpus[0].processes == std::vector<unsigned>{4242}));
  CHECK(gpus[1].lost == "GPU is lost");
  CHECK((gpus[2].prohibited && !gpus[2].exclusive && gpus[2].lost.empty() && !gpus[2].mig));
  CHECK(seen_gpus(NvmlLibrary("libno-such-library.so.1")).empty());
  const auto by_old_driver = seen_gpus(NvmlLibrary(OLD_DRIVER));  // without MIG and processes
  REQUIRE(by_old_driver.size() == 3);
  CHECK((!by_old_driver[0].mig && by_old_driver[0].exclusive && by_old_driver[0].processes.empty()));
}

TEST_CASE("the driver's files that this process may not open are found") {
  const TemporaryFolder dev;
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidiax", "null"}) {
    std::ofstream(dev / name) << "";
    std::filesystem::permissions(dev / name, std::filesystem::perms::all);
  }
  std::filesystem::permissions(dev / "nvidia0", std::filesystem::perms::none);
  std::filesystem::permissions(dev / "nvidiactl", std::filesystem::perms::others_read);  // not enough
  std::filesystem::permissions(dev.path(), std::filesystem::perms::all);
  const uid_t user = ::geteuid();
  const bool changed = ::seteuid(65534) == 0;  // root may open every file
  const auto evidence = gpu_evidence({}, "libno-such-library.so.1", dev.path());
  if (changed) REQUIRE(::seteuid(user) == 0);
  CHECK(evidence.device_files ==
        std::vector<std::string>{dev / "nvidia-uvm", dev / "nvidia0", dev / "nvidia1", dev / "nvidiactl"});
  if (evidence.cuda.gpus == 0)
    CHECK(evidence.forbidden_files == std::vector<std::string>{dev / "nvidia0", dev / "nvidiactl"});
}
