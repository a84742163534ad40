#include "comm/job.h"

#include "base/clock.h"
#include "base/blocked_signals.h"
#include "base/json.h"
#include "comm/backends.h"
#include "comm/c10d_communicator.h"
#include "comm/local_address.h"
#include "comm/within.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <fmt/ranges.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace trainopt {
namespace {

constexpr double kBeatS = 0.5;
constexpr double kSilentS = 3;     // without a beat; a process that only waits still beats
constexpr double kFarewellS = 10;  // that rank 0 waits for others to read why the job ends
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr const char *kFailure = "failure", *kAdmission = "admission";

std::string text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string ranks_text(const std::vector<int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string first_line(const std::string& words) {
  constexpr size_t kMost = 200;
  return words.substr(0, std::min(words.find('\n'), kMost));
}

std::string key(const char* name, int64_t rank) { return fmt::format("{}/{}", name, rank); }

Json to_json(const RankFacts& facts, const RankPosition& position) {
  return {{"recipe", facts.recipe}, {"build", facts.build},    {"host", facts.host},
          {"cpus", facts.cpus},     {"ranks", position.ranks}, {"local_rank", position.local_rank}};
}

[[noreturn]] void rank_0_is_gone(const std::exception& error) {
  spdlog::debug("{}", error.what());
  throw UserError("rank 0 is gone, which held the job together; the newest checkpoint stays as it is", ExitCode::peer);
}

/// Of all ranks, by rank; null for those that have not come in time.
std::vector<Json> wait_for_all(c10d::Store& store, const MeetingPoint& where) {
  std::vector<Json> facts(static_cast<size_t>(where.position.ranks));
  const auto began = Clock::now();
  for (bool all = false; !all && seconds_since(began) < where.timeout_s; std::this_thread::sleep_for(kLook)) {
    all = true;
    for (int64_t rank = 0; rank < where.position.ranks && seconds_since(began) < where.timeout_s; ++rank) {
      Json& each = facts[static_cast<size_t>(rank)];
      if (each.is_null() && store.check({key("here", rank)})) each = Json::parse(text(store.get(key("here", rank))));
      all &= !each.is_null();
    }
  }
  return facts;
}

struct Admission {
  std::string why_not;  ///< empty: all are there and alike
  ExitCode code = ExitCode::recipe;
};

/// Rank 0 judges for all, so that all end with the same sentence.
Admission judge(const std::vector<Json>& facts, const MeetingPoint& where) {
  std::vector<int64_t> missing;
  for (size_t rank = 0; rank < facts.size(); ++rank)
    if (facts[rank].is_null()) missing.push_back(static_cast<int64_t>(rank));
  if (!missing.empty())
    return {fmt::format("{} of {} did not come within {:g} s (parallel.timeout)", ranks_text(missing),
                        where.position.ranks, where.timeout_s),
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
      return {fmt::format("all ranks must have {}: {} {} another than rank 0", what, ranks_text(others),
                          others.size() == 1 ? "has" : "have"),
              ExitCode::recipe};
  }
  return {};
}

/// The cores that this rank may keep busy: those it has alone, or its share of those it has in common.
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

}  // namespace

struct Job::Beat {
  int64_t rank = 0, count = -1, steps = 0;
  std::string stage;
  bool left = false, asks = false;
};

Job::Job(MeetingPoint where, RankFacts mine) : where_(std::move(where)), store_(meet(where_)) {
  const RankPosition& position = where_.position;
  if (store_->add(key("claimed", position.rank), 1) > 1)
    throw UserError(
        fmt::format("two processes say that they are rank {}; is the address that of another job?", position.rank),
        ExitCode::peer);
  beat_store_ = store_->clone();  // before anybody counts on this rank: connecting takes seconds now and then
  asking_store_ = store_->clone();
  store_->set(key("here", position.rank), bytes(to_json(mine, position).dump()));
  const auto facts = all_facts();
  cores_ = share_of_cores(facts, position.rank);
  const bool one_machine =
      std::all_of(facts.begin(), facts.end(), [&](const Json& each) { return each.at("host") == facts[0].at("host"); });
  address_ = one_machine ? "127.0.0.1" : local_address_towards(where_.address.value_or("127.0.0.1"), where_.port);
  store_->setTimeout(std::chrono::milliseconds(static_cast<int64_t>(where_.timeout_s * 1e3)));
  const BlockedSignals blocked;
  beating_ = std::thread([this] { beat(); });
}

/// What every rank said of itself. Throws what rank 0 made of it.
std::vector<Json> Job::all_facts() {
  if (where_.position.is_first()) {
    const auto facts = wait_for_all(*store_, where_);
    const Admission admission = judge(facts, where_);
    if (!where_.address) std::filesystem::remove(where_.port_folder / fmt::format("trainopt-port-{}", where_.job));
    store_->set(
        kAdmission,
        bytes(
            Json{{"why_not", admission.why_not}, {"code", static_cast<int>(admission.code)}, {"facts", facts}}.dump()));
    if (admission.why_not.empty()) return facts;
    const auto all_have_read = [&] {
      for (size_t rank = 1; rank < facts.size(); ++rank)
        if (!facts[rank].is_null() && !store_->check({key("left", static_cast<int64_t>(rank))})) return false;
      return true;
    };
    for (const auto began = Clock::now(); !all_have_read() && seconds_since(began) < kSilentS;)
      std::this_thread::sleep_for(kLook);
    throw UserError(admission.why_not, admission.code);
  }
  Json admission;
  try {
    const double patience_s = where_.timeout_s + kSilentS;  // rank 0 may have come as much later
    for (const auto began = Clock::now(); !store_->check({kAdmission}); std::this_thread::sleep_for(kLook))
      if (seconds_since(began) > patience_s)
        throw UserError(fmt::format("rank 0 did not come within {:g} s (parallel.timeout)", patience_s),
                        ExitCode::peer);
    admission = Json::parse(text(store_->get(kAdmission)));
    if (!admission.at("why_not").get<std::string>().empty()) store_->set(key("left", where_.position.rank), "1");
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {  // named recovery: c10d has no type for it
    rank_0_is_gone(error);
  }
  if (const auto why_not = admission.at("why_not").get<std::string>(); !why_not.empty())
    throw PeerFailed(why_not, static_cast<ExitCode>(admission.at("code").get<int>()));
  return admission.at("facts").get<std::vector<Json>>();
}

Job::~Job() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_all();
  beating_.join();
  try {
    store_->set(key("left", where_.position.rank), "1");
    if (!where_.position.is_first() || where_.served_elsewhere) return;
    const auto began = Clock::now();
    auto before = beats(*store_);
    for (auto looked = began; seconds_since(began) < kFarewellS; std::this_thread::sleep_for(kLook)) {
      const auto now = beats(*store_);
      if (std::all_of(now.begin(), now.end(), [](const Beat& each) { return each.rank == 0 || each.left; })) return;
      if (seconds_since(looked) < kSilentS) continue;
      bool anybody = false;
      for (size_t i = 1; i < now.size(); ++i) anybody |= !now[i].left && now[i].count != before[i].count;
      if (!anybody) return;
      looked = Clock::now();
      before = now;
    }
  } catch (const std::exception& error) {  // nobody is left to tell
    spdlog::debug("leaving the job: {}", error.what());
  }
}

void Job::beat() {
  pthread_setname_np(pthread_self(), "heartbeat");
  std::unique_lock lock(mutex_);
  try {
    for (int64_t count = 0; !leaving_; ++count) {
      lock.unlock();
      beat_store_->set(key("beat", where_.position.rank), bytes(Json{count, steps_.load(), stage_.load()}.dump()));
      lock.lock();
      wake_.wait_for(lock, std::chrono::duration<double>(kBeatS), [&] { return leaving_; });
    }
  } catch (
      const std::exception& error) {  // a thread boundary: the training thread notices by itself that rank 0 is gone
    spdlog::debug("heartbeat: {}", error.what());
  }
}

std::vector<Job::Beat> Job::beats(c10d::Store& store) const {
  std::vector<Beat> all;
  for (int64_t rank = 0; rank < where_.position.ranks; ++rank) {
    Beat& each = all.emplace_back(Beat{.rank = rank, .stage = "start"});
    each.left = store.check({key("left", rank)});
    each.asks = store.check({key("asks", rank)});
    if (!store.check({key("beat", rank)})) continue;
    const Json json = Json::parse(text(store.get(key("beat", rank))));
    each.count = json.at(0);
    each.steps = json.at(1);
    each.stage = json.at(2);
  }
  return all;
}

void Job::at(const char* stage, int64_t steps) noexcept {
  stage_ = stage;
  steps_ = steps;
}

bool Job::tell_failure(ExitCode code, const std::string& message) {
  const std::string told =
      Json{{"rank", where_.position.rank}, {"code", static_cast<int>(code)}, {"message", message}}.dump(
          -1, ' ', false, Json::error_handler_t::replace);
  try {
    return within(kSilentS, [store = asking_store_, told] {
      const bool first = store->add("failing", 1) == 1;
      if (first) store->set(kFailure, bytes(told));
      return first;
    });
  } catch (const std::exception& error) {  // rank 0 is gone: nobody can be told
    spdlog::debug("telling the others: {}", error.what());
    return true;
  }
}

std::optional<std::string> Job::failure(c10d::Store& store) {
  if (!store.check({kFailure})) return std::nullopt;
  return text(store.get(kFailure));
}

void Job::explain(const LostRank& lost) {
  spdlog::debug("{}", lost.words());
  struct Answer {
    std::optional<std::string> failure;
    std::vector<Beat> before, now;
    bool first = false;  ///< to say it
  };
  Answer answer;
  try {
    answer = within(
        kSilentS + kFarewellS, [this, store = asking_store_] {  // `this` outlives it: whoever asks ends the process
          Answer found;
          store->set(key("asks", where_.position.rank), "1");  // whoever asks why is not the reason
          found.before = beats(*store);
          for (const auto began = Clock::now(); seconds_since(began) < kSilentS; std::this_thread::sleep_for(kLook))
            if ((found.failure = failure(*store))) return found;
          found.now = beats(*store);
          found.first = store->add("explaining", 1) == 1;
          return found;
        });
  } catch (const std::exception& error) {  // the store is gone, and with it the rank that served it
    rank_0_is_gone(error);
  }
  if (answer.failure) {
    const Json json = Json::parse(*answer.failure);
    throw PeerFailed(
        fmt::format("rank {} failed: {}", json.at("rank").get<int64_t>(), json.at("message").get<std::string>()),
        static_cast<ExitCode>(json.at("code").get<int>()));
  }
  std::vector<int64_t> silent, hanging;  // gone; or alive, and not in the exchange that the others wait in
  std::vector<std::string> where;
  for (size_t i = 0; i < answer.now.size(); ++i) {
    const Beat& each = answer.now[i];
    if (!each.asks && (each.left || each.count == answer.before[i].count))
      silent.push_back(each.rank);
    else if (!each.asks && each.rank != where_.position.rank)
      hanging.push_back(each.rank);
    where.push_back(fmt::format("rank {} after step {}, {}", each.rank, each.steps, each.stage));
  }
  const std::string sentence =
      silent.empty() && !hanging.empty()
          ? fmt::format(
                "{} {} alive and did not come to an exchange within {:g} s (parallel.timeout); the newest checkpoint "
                "stays as it is: {}",
                ranks_text(hanging), hanging.size() == 1 ? "is" : "are", where_.timeout_s, fmt::join(where, "; "))
      : silent.empty() ? fmt::format("an exchange between the ranks failed: {} (parallel.timeout is {:g} s): {}",
                                     first_line(lost.words()), where_.timeout_s, fmt::join(where, "; "))
                       : fmt::format("{} {} gone or stopped; the newest checkpoint stays as it is: {}",
                                     ranks_text(silent), silent.size() == 1 ? "is" : "are", fmt::join(where, "; "));
  if (!answer.first) throw PeerFailed(sentence, ExitCode::peer);
  throw UserError(sentence, ExitCode::peer);
}

void Job::put(const std::string& key, const std::string& value) {
  or_lost_rank(
      [&] { within(where_.timeout_s, [store = store_, key, value] { store->set("text/" + key, bytes(value)); }); });
}

bool Job::has(const std::string& key) {
  return within(where_.timeout_s, [store = store_, key] { return store->check({key}); });
}

std::string Job::get(const std::string& key) {
  return or_lost_rank([&] {
    for (const auto began = Clock::now(); !has("text/" + key); std::this_thread::sleep_for(kLook)) {
      if (has(kFailure)) throw LostRank("a rank has failed");
      if (seconds_since(began) > where_.timeout_s) throw LostRank(fmt::format("nobody wrote {}", key));
    }
    return text(store_->get("text/" + key));
  });
}

std::unique_ptr<Communicator> Job::make_communicator(c10::Device device, const NcclConfig& nccl) {
  // Here whoever fails before is heard of; the exchange below would wait for it as long as it can.
  const auto ready = [&](int64_t each) { return fmt::format("ready/{}/{}", communicators_, each); };
  put(ready(where_.position.rank), "yes");
  for (int64_t each = 0; each < where_.position.ranks; ++each) get(ready(each));
  const int rank = static_cast<int>(where_.position.rank), ranks = static_cast<int>(where_.position.ranks);
  const auto prefix = fmt::format("group/{}", communicators_++);
  const auto store = [&](const char* name) {
    return c10::make_intrusive<c10d::PrefixStore>(prefix + "/" + name, store_);
  };
  return or_lost_rank([&] {
    auto data = c10::make_intrusive<c10d::ProcessGroup>(store("data"), rank, ranks);
    const auto type = device.is_cpu() ? c10d::ProcessGroup::BackendType::GLOO : c10d::ProcessGroup::BackendType::NCCL;
    data->setBackend(
        device.type(), type,
        device.is_cpu()
            ? make_gloo(store("data"), rank, ranks, address_, where_.timeout_s)
            : make_nccl(store("data"), rank, ranks,
                        {.timeout_s = where_.timeout_s, .min_ctas = nccl.min_ctas, .max_ctas = nccl.max_ctas}));
    data->setDefaultBackend(type);
    return std::make_unique<C10dCommunicator>(where_.position, std::move(data),
                                              make_gloo(store("host"), rank, ranks, address_, where_.timeout_s));
  });
}

}  // namespace trainopt
