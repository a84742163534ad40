#include "comm/job.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "comm/c10d_store.h"
#include "comm/heartbeat.h"
#include "comm/meeting_wait.h"
#include "comm/process_groups.h"
#include "comm/rendezvous.h"
#include "comm/store.h"

#include <algorithm>
#include <filesystem>
#include <set>
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
    const bool is_silent = !silent.empty() && silent.back() == each.rank;
    positions.push_back(fmt::format("rank {} {}after step {}, {}", each.rank, is_silent ? "was last heard of " : "",
                                    each.steps, each.stage));
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

/// Call when rank 0, which served the store, is gone. Throws UserError(peer); `error` goes to the debug log.
[[noreturn]] void throw_rank_0_lost(const std::exception& error, const RendezvousOptions& options) {
  if (is_out_of_threads(error)) throw UserError(out_of_threads_text(), ExitCode::memory);
  log_debug("{}", error.what());
  throw UserError(fmt::format("rank 0 is gone, and with it the job's store; {}", options.kept), ExitCode::peer);
}

constexpr const char* kAdmission = "admission";

Json to_json(const RankFacts& facts, const RankPosition& position) {
  return {{"recipe", facts.recipe}, {"build", facts.build},    {"host", facts.host},
          {"cpus", facts.cpus},     {"ranks", position.ranks}, {"local_rank", position.local_rank}};
}

std::vector<int64_t> missing_ranks(const std::vector<Json>& facts) {
  std::vector<int64_t> missing;
  for (size_t rank = 0; rank < facts.size(); ++rank)
    if (facts[rank].is_null()) missing.push_back(static_cast<int64_t>(rank));
  return missing;
}

/// The facts of all ranks, indexed by rank; null for those that did not join in time.
std::vector<Json> wait_for_all(c10d::Store& store, const RendezvousOptions& options) {
  std::vector<Json> facts(static_cast<size_t>(options.position.ranks));
  MeetingWait wait(options);
  for (; wait.seconds() < options.timeout_s; std::this_thread::sleep_for(kPollInterval)) {
    for (int64_t rank = 0; rank < options.position.ranks && wait.seconds() < options.timeout_s; ++rank) {
      Json& each = facts[static_cast<size_t>(rank)];
      if (each.is_null() && store.check({rank_key("here", rank)}))
        each = parse_json(store.get_to_str(rank_key("here", rank)));
    }
    const auto missing = missing_ranks(facts);
    if (missing.empty()) break;
    wait.still(fmt::format("{} of {}", ranks_text(missing), options.position.ranks));
  }
  return facts;
}

struct Admission {
  std::string why_not;  ///< empty: all ranks joined and agree
  ExitCode code = ExitCode::recipe;
};

/// Rank 0 decides for all ranks, so that all of them end with the same message.
Admission judge(const std::vector<Json>& facts, const RendezvousOptions& options) {
  if (const auto missing = missing_ranks(facts); !missing.empty())
    return {fmt::format("{} of {} did not join within {:g} s (parallel.timeout){}", ranks_text(missing),
                        options.position.ranks, options.timeout_s, MeetingWait(options).variables()),
            ExitCode::peer};
  struct {
    const char *field, *what;
  } constexpr kAlike[] = {{"ranks", "the same number of ranks"},
                          {"build", "the same program and libraries"},
                          {"recipe", "the same recipe"}};
  for (const auto& [field, what] : kAlike) {
    std::vector<int64_t> others;
    for (size_t rank = 0; rank < facts.size(); ++rank)
      if (facts[rank].at(field) != facts[0].at(field)) others.push_back(static_cast<int64_t>(rank));
    if (!others.empty())
      return {fmt::format("all ranks must have {}: {} {} from rank 0", what, ranks_text(others),
                          others.size() == 1 ? "differs" : "differ"),
              ExitCode::recipe};
  }
  return {};
}

/// Rank 0 decides and publishes its answer. If it refuses, it throws after the ranks that joined have read the reason.
std::vector<Json> admit_all(c10d::Store& store, const RendezvousOptions& options,
                            const std::filesystem::path& port_file) {
  auto facts = wait_for_all(store, options);
  const Admission admission = judge(facts, options);
  std::error_code ignored;
  if (!port_file.empty()) std::filesystem::remove(port_file, ignored);
  const Json answer = {{"why_not", admission.why_not}, {"code", static_cast<int>(admission.code)}, {"facts", facts}};
  store.set(kAdmission, json_text(answer));
  if (admission.why_not.empty()) return facts;
  const auto all_have_read = [&] {
    for (size_t rank = 1; rank < facts.size(); ++rank)
      if (!facts[rank].is_null() && !store.check({rank_key("left", static_cast<int64_t>(rank))})) return false;
    return true;
  };
  for (const auto began = Clock::now(); !all_have_read() && seconds_since(began) < kHeartbeatTimeoutS;)
    std::this_thread::sleep_for(kPollInterval);
  throw UserError(admission.why_not, admission.code);
}

/// Waits for rank 0's answer.
Json wait_for_answer(c10d::Store& store, const RendezvousOptions& options) {
  try {
    const double timeout_s = options.timeout_s + kHeartbeatTimeoutS;  // rank 0 may itself have joined that much later
    MeetingWait wait(options);
    for (; !store.check({kAdmission}); std::this_thread::sleep_for(kPollInterval)) {
      wait.still("rank 0, which waits for all ranks");
      if (wait.seconds() > timeout_s)
        throw UserError(
            fmt::format("rank 0 did not answer within {:g} s (parallel.timeout){}", timeout_s, wait.variables()),
            ExitCode::peer);
    }
    const Json answer = parse_json(store.get_to_str(kAdmission));
    if (!answer.at("why_not").get<std::string>().empty()) store.set(rank_key("left", options.position.rank), "1");
    return answer;
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {  // named recovery: c10d has no specific exception type
    throw_rank_0_lost(error, options);
  }
}

/// Waits until all ranks have joined and returns their facts, indexed by rank. On failure it throws UserError on rank 0
/// and PeerFailed with the same message on the others: `peer` naming the ranks that are missing after the timeout, or
/// `recipe` naming the ranks that differ in recipe, build or number of ranks.
/// `port_file` is removed once nobody needs it; empty: none.
std::vector<Json> admit(c10d::Store& store, const RendezvousOptions& options, const RankFacts& mine,
                        const std::filesystem::path& port_file) {
  store.set(rank_key("here", options.position.rank), json_text(to_json(mine, options.position)));
  if (options.position.is_first()) return admit_all(store, options, port_file);
  const Json answer = wait_for_answer(store, options);
  if (const auto why_not = answer.at("why_not").get<std::string>(); !why_not.empty())
    throw PeerFailed(why_not, code_of_peer(answer.at("code").get<int>()));
  return answer.at("facts").get<std::vector<Json>>();
}

/// Cores for this rank: the number of CPUs it may use, divided by the number of ranks on its host that may use any of
/// them; at least 1.
int64_t share_of_cores(const std::vector<Json>& facts, int64_t rank) {
  const Json& mine = facts[static_cast<size_t>(rank)];
  const auto cpus = mine.at("cpus").get<std::set<int>>();
  if (cpus.empty()) return 1;
  int64_t sharing = 0;
  for (const Json& other : facts) {
    if (other.at("host") != mine.at("host")) continue;
    const auto theirs = other.at("cpus").get<std::vector<int>>();
    sharing += std::any_of(theirs.begin(), theirs.end(), [&](int cpu) { return cpus.contains(cpu); });
  }
  return std::max<int64_t>(1, static_cast<int64_t>(cpus.size()) / sharing);
}

/// Whether all ranks run on the same host.
bool on_one_machine(const std::vector<Json>& facts) {
  return std::all_of(facts.begin(), facts.end(),
                     [&](const Json& each) { return each.at("host") == facts[0].at("host"); });
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
