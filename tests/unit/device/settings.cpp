#include "device/backend_settings.h"
#include "device/process.h"
#include "support/catch.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <sched.h>

using namespace trainopt;

TEST_CASE("a backend guard applies and puts back, also where libtorch's flags disagreed before") {
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

TEST_CASE("process settings") {
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

TEST_CASE("cores follow the affinity mask") {
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

TEST_CASE("cores of a cgroup's quota") {
  CHECK(cores_of_quota("200000 100000") == 2);
  CHECK(cores_of_quota("150000 100000") == 2);
  CHECK(cores_of_quota("50000 100000") == 1);
  CHECK(cores_of_quota("50000 100000\n") == 1);
  CHECK(!cores_of_quota("max 100000"));
  CHECK(!cores_of_quota(""));
  CHECK(!cores_of_quota("100000"));
  CHECK(!cores_of_quota("100000 0"));
}

TEST_CASE("this CPU is new enough, since the test is running on it") { CHECK_NOTHROW(require_x86_64_v3()); }
