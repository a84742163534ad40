#include "app/stack_limit.h"

#include "base/error.h"

#include <pthread.h>
#include <sys/resource.h>

namespace trainopt {
namespace {
constexpr rlim_t kNeededBytes = rlim_t{2} << 20;
}

void require_stack() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kNeededBytes) return;  // also RLIM_INFINITY
  const rlim_t allowed = limit.rlim_cur;
  limit.rlim_cur = kNeededBytes;
  if (limit.rlim_max < kNeededBytes || ::setrlimit(RLIMIT_STACK, &limit) != 0)
    throw UserError(fmt::format("a stack of {} KiB is too small (ulimit -s); at least {} are needed", allowed >> 10,
                                kNeededBytes >> 10),
                    ExitCode::memory);
  // glibc has read the old limit as the size for new threads.
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return;
  ::pthread_attr_setstacksize(&attributes, kNeededBytes);
  ::pthread_setattr_default_np(&attributes);
  ::pthread_attr_destroy(&attributes);
}

}  // namespace trainopt
