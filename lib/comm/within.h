// Calls that may never return: a store whose server was stopped keeps its clients waiting without end.
#pragma once

#include "comm/lost_rank.h"

#include <chrono>
#include <future>
#include <thread>

namespace trainopt {

/// What `call` gives or throws, if it does within so many seconds. Otherwise throws LostRank; the call goes on on a
/// thread of its own, so it must own what it uses.
template <class Call>
auto within(double seconds, Call call) {
  std::packaged_task<decltype(call())()> task(std::move(call));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready)
    throw LostRank("rank 0 does not answer");
  return result.get();
}

}  // namespace trainopt
