#include "base/error.h"
#include "device/backend_settings.h"
#include "device/process.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <sched.h>

#include <fstream>
#include <future>

using namespace trainopt;

TEST_CASE("a CPU computes float32 products in float32") {
  const double error = float32_product_error(c10::kCPU);
  CHECK(error > 0);
  CHECK(error < 1e-5);  // inputs with TF32's 10 bits of mantissa: about 3e-4
}

TEST_CASE("a backend guard applies and restores settings, even if libtorch's flags disagreed before") {
  auto& context = at::globalContext();
  context.setAllowTF32CuDNN(true);
  context.setAllowTF32CuBLAS(false);
  {
    const BackendGuard plain(BackendSettings{});
    CHECK(!context.allowTF32CuDNN());
    CHECK(!context.allowTF32CuBLAS());
    CHECK(!context.benchmarkCuDNN());
    {
      const BackendGuard all(BackendSettings{.cudnn_benchmark = true, .allow_tf32 = true, .deterministic = true});
      CHECK(context.allowTF32CuDNN());
      CHECK(context.allowTF32CuBLAS());
      CHECK(context.benchmarkCuDNN());
      CHECK(context.deterministicCuDNN());
      CHECK(context.deterministicAlgorithms());
      CHECK(!context.deterministicAlgorithmsWarnOnly());
    }
    CHECK(!context.benchmarkCuDNN());
    CHECK(!context.deterministicAlgorithms());
    CHECK(!context.deterministicCuDNN());
    CHECK(!context.allowTF32CuBLAS());
  }
  CHECK(context.allowTF32CuDNN());
  CHECK(!context.allowTF32CuBLAS());
}

TEST_CASE("a backend guard chooses the implementation of attention, and restores the choice") {
  auto& context = at::globalContext();
  const auto order = context.sDPPriorityOrder();
  const auto wanted =
      GENERATE(AttentionKernel::math, AttentionKernel::flash, AttentionKernel::efficient, AttentionKernel::cudnn);
  CHECK(current_attention_kernel() == AttentionKernel::automatic);
  {
    const BackendGuard settings(BackendSettings{.attention = wanted});
    CHECK(current_attention_kernel() == wanted);
    CHECK(context.userEnabledMathSDP());  // for what the wanted one does not support
    if (wanted == AttentionKernel::cudnn)
      CHECK(context.sDPPriorityOrder().front() == at::SDPBackend::cudnn_attention);  // libtorch's order has math before
    const BackendGuard inner(BackendSettings{});
    CHECK(current_attention_kernel() == AttentionKernel::automatic);
  }
  CHECK(current_attention_kernel() == AttentionKernel::automatic);
  CHECK(context.sDPPriorityOrder() == order);
}

TEST_CASE("the kernel's CPU lists are parsed") {
  CHECK(cpus_of_list("0-3,8,10-11") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(cpus_of_list("7") == std::vector<int>{7});
  for (const char* bad : {"", "x", "3-1", "1,,2", "1-", "-1", "0-99999999999", "1 2"}) {
    INFO(bad);
    CHECK(cpus_of_list(bad).empty());
  }
}

TEST_CASE("the CPUs local to a GPU are those the kernel lists") {
  const TemporaryFolder sys;
  const auto folder = sys.path() / "bus/pci/devices/0000:1b:00.0";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "local_cpulist") << "4-7\n";
  CHECK(cpus_local_to("00000000:1B:00.0", sys.path()) == std::vector<int>{4, 5, 6, 7});
  CHECK(cpus_local_to("00000000:1C:00.0", sys.path()).empty());
  CHECK(cpus_local_to("", sys.path()).empty());
}

TEST_CASE("binding a process to CPUs affects both running threads and later ones") {
  const auto before = allowed_cpus();
  if (before.size() < 2) return;
  std::promise<void> bound;
  auto running = std::async(std::launch::async, [&] {
    bound.get_future().wait();
    return allowed_cpus();
  });
  ProcessSettings settings;
  settings.cpus = {before.back()};
  apply(settings);
  bound.set_value();
  CHECK(running.get() == settings.cpus);
  CHECK(std::async(std::launch::async, allowed_cpus).get() == settings.cpus);
  settings.cpus = before;
  apply(settings);
  CHECK(allowed_cpus() == before);
}

TEST_CASE("process settings set the thread count and keep an existing cuBLAS workspace setting") {
  const int before = at::get_num_threads();
  apply({.num_threads = 1, .deterministic = false});
  CHECK(at::get_num_threads() == 1);
  apply({});
  CHECK(at::get_num_threads() == 1);
  apply({.num_threads = before, .deterministic = false});
  setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  apply({.num_threads = std::nullopt, .deterministic = true});
  CHECK(std::string(getenv("CUBLAS_WORKSPACE_CONFIG")) == ":16:8");
  unsetenv("CUBLAS_WORKSPACE_CONFIG");
  apply({.num_threads = std::nullopt, .deterministic = true});
  CHECK(std::string(getenv("CUBLAS_WORKSPACE_CONFIG")) == ":4096:8");
}

TEST_CASE("a variable that is already set to another value is an error, never dropped") {
  const ProcessSettings settings{.environment = {{"NCCL_ALGO", "Ring"}, {"TORCH_NCCL_DUMP_ON_TIMEOUT", "1"}}};
  CHECK_NOTHROW(require_no_contradiction(settings, {}));
  CHECK_NOTHROW(require_no_contradiction(settings, {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}}));
  CHECK_THROWS_WITH(require_no_contradiction(settings, {{"NCCL_ALGO", "Tree"}}),
                    Catch::Matchers::Contains("unset the variable, or remove the recipe key behind it if there is one: "
                                              "NCCL_ALGO=Tree, the run sets Ring"));
  CHECK_THROWS_AS(require_no_contradiction(settings, {{"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"}}), UserError);
}

TEST_CASE("the number of allowed cores follows the affinity mask") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  CHECK(allowed_cores() >= 1);
  CHECK(allowed_cores() <= CPU_COUNT(&before));
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(allowed_cores() == 1);
  sched_setaffinity(0, sizeof before, &before);
}

TEST_CASE("a cgroup's CPU quota is converted to cores") {
  CHECK(cores_of_quota("200000 100000") == 2);
  CHECK(cores_of_quota("150000 100000") == 2);
  CHECK(cores_of_quota("50000 100000") == 1);
  CHECK(cores_of_quota("50000 100000\n") == 1);
  CHECK(!cores_of_quota("max 100000"));
  CHECK(!cores_of_quota(""));
  CHECK(!cores_of_quota("100000"));
  CHECK(!cores_of_quota("100000 0"));
}

TEST_CASE("the x86-64-v3 check passes on the CPU that runs this test") { CHECK_NOTHROW(require_x86_64_v3()); }

TEST_CASE("another release of libtorch than the one built with is refused with both versions") {
  CHECK(libtorch_version_in("Build settings: A=1, TORCH_VERSION=2.11.0, USE_CUDA=ON") == "2.11.0");
  CHECK(libtorch_version_in("TORCH_VERSION=2.11.0+cu130") == "2.11.0");
  CHECK(libtorch_version_in("PyTorch built with:") == "");
  const std::string loaded = libtorch_version();
  CHECK_THAT(loaded, Catch::Matchers::StartsWith("2."));
  CHECK_NOTHROW(require_libtorch(loaded));
  CHECK_NOTHROW(require_libtorch(loaded.substr(0, loaded.rfind('.')) + ".99"));
  CHECK_NOTHROW(require_libtorch(""));  // it does not tell
  CHECK_THROWS_WITH(require_libtorch("1.13.1"),
                    ContainsSubstring("found 1.13.1, built with 2.") && ContainsSubstring("install"));
}
