// The key-value store that the ranks share, by name only: c10d's own header costs every file that includes it seconds.
#pragma once

#include "comm/communicator.h"

#include <c10/util/intrusive_ptr.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace c10d {
class Store;
}  // namespace c10d

namespace trainopt {

// Keys in the job's store, and rank lists for messages.

/// Key of a value that one rank writes: "beat/3".
inline std::string rank_key(const char* name, int64_t rank) { return fmt::format("{}/{}", name, rank); }

/// "ranks 1, 2", "rank 3".
inline std::string ranks_text(const std::vector<int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// Values of the ranks' store that only ranks with the job's key can have written.

/// A view of `store` in which every value carries an HMAC-SHA-256 of its key's name and itself under `key`, which never
/// is in the store. A value without a valid one counts as absent, and the first such value is logged. Numbers, which
/// the store itself adds up, cannot be sealed: a stranger can end a job by them, so no result may depend on them.
c10::intrusive_ptr<c10d::Store> sealed_store(c10::intrusive_ptr<c10d::Store> store, std::string key);

// Time limits for calls that may never return: clients of a store whose server was stopped wait forever.

/// Returns or throws what `call` does if it finishes within `seconds`. Otherwise throws LostRank; the call continues on
/// its own thread, so it must own everything it uses. `meanwhile` is called again and again, and may throw.
template <class Call, class Meanwhile>
auto with_timeout(double seconds, Call call, Meanwhile meanwhile) {
  constexpr std::chrono::duration<double> kRound(0.02);
  std::packaged_task<decltype(call())()> task(std::move(call));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (result.wait_for(std::min<std::chrono::duration<double>>(end - std::chrono::steady_clock::now(), kRound)) !=
         std::future_status::ready) {
    if (std::chrono::steady_clock::now() >= end) throw LostRank("rank 0 does not answer");
    meanwhile();
  }
  return result.get();
}
template <class Call>
auto with_timeout(double seconds, Call call) {
  return with_timeout(seconds, std::move(call), [] {});
}

}  // namespace trainopt
