#include "comm/heartbeat.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "comm/c10d_store.h"
#include "comm/store.h"

#include <pthread.h>

#include <algorithm>

namespace trainopt {
namespace {

constexpr double kBeatS = 0.5;

}  // namespace

std::vector<Beat> read_beats(c10d::Store& store, int64_t ranks) {
  std::vector<Beat> all;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Beat& each = all.emplace_back(Beat{.rank = rank, .stage = "start"});
    each.left = store.check({rank_key("left", rank)});
    each.explaining = store.check({rank_key("asks", rank)});
    if (!store.check({rank_key("beat", rank)})) continue;
    const Json json = parse_json(store.get_to_str(rank_key("beat", rank)));
    each.count = json.at(0);
    each.steps = json.at(1);
    each.stage = json.at(2);
  }
  return all;
}

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, int64_t rank) : store_(std::move(store)), rank_(rank) {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Heartbeat::at(const char* stage, int64_t steps) noexcept {
  stage_ = stage;
  steps_ = steps;
}

void Heartbeat::run() {
  pthread_setname_np(pthread_self(), "heartbeat");
  std::unique_lock lock(mutex_);
  try {
    for (int64_t count = 0; !leaving_; ++count) {
      lock.unlock();
      store_->set(rank_key("beat", rank_), json_text(Json{count, steps_.load(), stage_.load()}));
      lock.lock();
      wake_.wait_for(lock, std::chrono::duration<double>(kBeatS), [&] { return leaving_; });
    }
  } catch (const std::exception& error) {
    // Exceptions must not leave this thread; the training thread notices by itself that rank 0 is gone.
    log_debug("heartbeat: {}", error.what());
  }
}

void wait_for_other_ranks(c10d::Store& store, int64_t ranks) {
  const auto began = Clock::now();
  auto before = read_beats(store, ranks);
  for (auto looked = began; seconds_since(began) < kExitWaitS; std::this_thread::sleep_for(kPollInterval)) {
    const auto now = read_beats(store, ranks);
    if (std::all_of(now.begin(), now.end(), [](const Beat& each) { return each.rank == 0 || each.left; })) return;
    if (seconds_since(looked) < kHeartbeatTimeoutS) continue;
    bool anybody = false;
    for (size_t i = 1; i < now.size(); ++i) anybody |= !now[i].left && now[i].count != before[i].count;
    if (!anybody) return;
    looked = Clock::now();
    before = now;
  }
}

}  // namespace trainopt
