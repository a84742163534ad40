#include "comm/job.h"

#include "base/log.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/progress.h"
#include "comm/local_address.h"
#include "comm/process_groups.h"
#include "comm/rank_keys.h"
#include "comm/with_timeout.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <thread>

namespace trainopt {
namespace {

constexpr const char *kFailure = "failure", *kExplaining = "explaining";

std::string first_line(const std::string& words) {
  constexpr size_t kMaxLength = 200;
  return words.substr(0, std::min(words.find('\n'), kMaxLength));
}

/// What the store knows after an exchange has failed.
struct Findings {
  std::optional<std::string> failure;  ///< reported by a rank
  std::vector<Beat> before, now;       ///< read kHeartbeatTimeoutS apart
  bool first = false;                  ///< this rank was the first to ask, so it reports the failure
};

Findings explain_failure(c10d::Store& store, const RankPosition& position) {
  Findings found;
  store.set(rank_key("asks", position.rank), "1");  // marks this rank as alive and not the cause
  found.before = read_beats(store, position.ranks);
  for (const auto began = Clock::now(); seconds_since(began) < kHeartbeatTimeoutS;
       std::this_thread::sleep_for(kPollInterval))
    if (store.check({kFailure})) {
      found.failure = store.get_to_str(kFailure);
      return found;
    }
  found.now = read_beats(store, position.ranks);
  found.first = store.add("explainers", 1) == 1;
  if (found.first) store.set(kExplaining, "1");
  return found;
}

/// Names the ranks that are gone, silent or behind.
std::string explanation(const Findings& found, const LostRank& lost, const RendezvousOptions& options) {
  std::vector<int64_t> silent, hanging;  // gone; alive, but not in the exchange that the others wait in
  std::vector<std::string> positions;
  for (size_t i = 0; i < found.now.size(); ++i) {
    const Beat& each = found.now[i];
    if (!each.explaining && (each.left || each.count == found.before[i].count))
      silent.push_back(each.rank);
    else if (!each.explaining && each.rank != options.position.rank)
      hanging.push_back(each.rank);
    positions.push_back(fmt::format("rank {} after step {}, {}", each.rank, each.steps, each.stage));
  }
  const std::string all = fmt::format("{}", fmt::join(positions, "; "));
  if (!silent.empty())
    return fmt::format("{} {} gone or stopped; {}: {}", ranks_text(silent), silent.size() == 1 ? "is" : "are",
                       options.kept, all);
  if (hanging.empty())
    return fmt::format("communication between the ranks failed: {} (parallel.timeout is {:g} s): {}",
                       first_line(lost.cause()), options.timeout_s, all);
  return fmt::format("{} {} alive but did not enter a collective within {:g} s (parallel.timeout); {}: {}",
                     ranks_text(hanging), hanging.size() == 1 ? "is" : "are", options.timeout_s, options.kept, all);
}

}  // namespace

Job::Job(RendezvousOptions options, RankFacts mine)
    : options_(std::move(options)), rendezvous_(join_rendezvous(options_)), store_(rendezvous_.part.store) {
  const RankPosition& position = options_.position;
  if (store_->add(rank_key("claimed", position.rank), 1) > 1)
    throw UserError(
        fmt::format(
            "two processes claim to be rank {}; check that MASTER_ADDR and MASTER_PORT are not those of another job",
            position.rank),
        ExitCode::peer);
  beat_store_ = store_->clone();  // before other ranks rely on this one: connecting can take seconds
  explain_store_ = store_->clone();
  const auto facts = admit(*store_, options_, mine, rendezvous_.port_file);
  cores_ = share_of_cores(facts, position.rank);
  address_ = on_one_machine(facts) ? "127.0.0.1"
                                   : local_address_towards(options_.address.value_or("127.0.0.1"), options_.port);
  store_->setTimeout(std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 1e3)));
  heartbeat_.emplace(beat_store_, position.rank);
}

Job::~Job() {
  heartbeat_.reset();
  try {
    store_->set(rank_key("left", options_.position.rank), "1");
    if (options_.position.is_first() && !options_.external_store)
      wait_for_other_ranks(*store_, options_.position.ranks);
  } catch (const std::exception& error) {  // no rank is left to notify
    log_debug("leaving the job: {}", error.what());
  }
}

RendezvousOptions Job::rendezvous_of(const std::string& name) const {
  RendezvousOptions options = options_;
  options.address = rendezvous_.address;
  options.port = rendezvous_.port;
  options.external_store = true;
  options.key = rendezvous_.part.key;
  options.made_key = true;
  options.job += "/" + name;
  return options;
}

bool Job::report_failure(ExitCode code, const std::string& message) {
  const std::string report =
      json_text(Json{{"rank", options_.position.rank}, {"code", static_cast<int>(code)}, {"message", message}});
  try {
    return with_timeout(kHeartbeatTimeoutS, [store = explain_store_, report] {
      const bool first = store->add("failing", 1) == 1;
      // Anybody can add to a number, so the first one's report must also come.
      for (const auto began = Clock::now(); !first && seconds_since(began) < kHeartbeatTimeoutS / 2;
           std::this_thread::sleep_for(kPollInterval))
        if (store->check({kFailure})) return false;
      store->set(kFailure, report);
      return true;
    });
  } catch (const std::exception& error) {  // rank 0 is gone, so the others cannot be notified
    log_debug("reporting the failure: {}", error.what());
    return true;
  }
}

void Job::explain(const LostRank& lost) {
  log_debug("{}", lost.cause());
  Findings found;
  try {
    found = with_timeout(kHeartbeatTimeoutS + kExitWaitS, [store = explain_store_, position = options_.position] {
      return explain_failure(*store, position);
    });
  } catch (const std::exception& error) {  // the store is gone, and so is rank 0, which served it
    throw_rank_0_lost(error, options_);
  }
  if (found.failure) {
    const Json json = parse_json(*found.failure);
    throw PeerFailed(
        fmt::format("rank {} failed: {}", json.at("rank").get<int64_t>(), json.at("message").get<std::string>()),
        code_of_peer(json.at("code").get<int>()));
  }
  const std::string sentence = explanation(found, lost, options_);
  if (!found.first) throw PeerFailed(sentence, ExitCode::peer);
  throw UserError(sentence, ExitCode::peer);
}

void Job::put(const std::string& key, const std::string& value) {
  or_lost_rank(
      [&] { with_timeout(options_.timeout_s, [store = store_, key, value] { store->set("text/" + key, value); }); });
}

bool Job::has(const std::string& key) {
  return with_timeout(options_.timeout_s, [store = store_, key] { return store->check({key}); });
}

bool Job::has_failed(const std::string& name) {
  return or_lost_rank([&] { return has(name + "/" + kFailure) || has(name + "/" + kExplaining); });
}

std::string Job::get(const std::string& key) {
  return or_lost_rank([&] {
    for (const auto began = Clock::now(); !has("text/" + key); std::this_thread::sleep_for(kPollInterval)) {
      if (has(kFailure)) throw LostRank("a rank has failed");
      note_progress();  // this wait has a limit of its own
      if (seconds_since(began) > options_.timeout_s) throw LostRank(fmt::format("no rank wrote {}", key));
    }
    return store_->get_to_str("text/" + key);
  });
}

std::unique_ptr<Communicator> Job::make_communicator(c10::Device device, double min_timeout_s) {
  // get() notices ranks that failed before this point; creating the backends below would wait for the full timeout.
  const auto ready = [&](int64_t each) { return fmt::format("ready/{}/{}", communicators_, each); };
  put(ready(options_.position.rank), "yes");
  for (int64_t each = 0; each < options_.position.ranks; ++each) get(ready(each));
  const auto store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("group/{}", communicators_++), store_);
  return or_lost_rank([&] {
    return connect_process_groups(store, {options_.position, address_, std::max(options_.timeout_s, min_timeout_s)},
                                  device);
  });
}

}  // namespace trainopt
