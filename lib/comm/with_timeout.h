// Time limits for calls that may never return: clients of a store whose server was stopped wait forever.
#pragma once

#include "comm/lost_rank.h"

#include <chrono>
#include <future>
#include <thread>

namespace trainopt {

/// Returns or throws what `call` does if it finishes within `seconds`. Otherwise throws LostRank; the call continues on
/// its own thread, so it must own everything it uses.
template <class Call>
auto with_timeout(double seconds, Call call) {
  std::packaged_task<decltype(call())()> task(std::move(call));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready)
    throw LostRank("rank 0 does not answer");
  return result.get();
}

}  // namespace trainopt
