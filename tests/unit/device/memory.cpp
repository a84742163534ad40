#include "device/memory.h"
#include "support/catch.h"
#include "support/sanitized.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

using namespace trainopt;

namespace {

/// Page faults of the third time that some tensors' memory is allocated, written and freed.
long faults_of_a_step() {
  constexpr size_t kBytes = size_t{20} << 20;
  rusage before{}, after{};
  for (int step = 0; step < 3; ++step) {
    getrusage(RUSAGE_SELF, &before);
    std::array<char*, 4> blocks{};
    for (char*& block : blocks) {
      block = static_cast<char*>(std::malloc(kBytes));
      if (!block) return -1;
      std::memset(block, step, kBytes);
      asm volatile("" : : "r"(block) : "memory");
    }
    for (char* block : blocks) std::free(block);
    getrusage(RUSAGE_SELF, &after);
  }
  return after.ru_minflt - before.ru_minflt;
}

/// In a process of its own, because settings of malloc stay.
bool stays_in_the_heap(const std::map<std::string, std::string>& environment) {
  const pid_t child = fork();
  if (child == 0) {
    keep_freed_heap(environment);
    const long faults = faults_of_a_step();
    _exit(faults < 0 ? 2 : faults < 1000 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) < 2));
  return WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("freed memory stays in the heap, unless the environment has settings of malloc") {
  if (kSanitized) return;  // they have an allocator of their own
  CHECK(stays_in_the_heap({{"GLIBC_TUNABLES", "glibc.pthread.rseq=0"}}));
  CHECK_FALSE(stays_in_the_heap({{"GLIBC_TUNABLES", "glibc.malloc.arena_max=4"}}));
  CHECK_FALSE(stays_in_the_heap({{"MALLOC_TRIM_THRESHOLD_", "131072"}}));
}
