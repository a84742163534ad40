#include "comm/admission.h"

#include "base/log.h"
#include "base/clock.h"
#include "comm/heartbeat.h"
#include "comm/rank_keys.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

namespace trainopt {
namespace {

constexpr const char* kAdmission = "admission";

Json to_json(const RankFacts& facts, const RankPosition& position) {
  return {{"recipe", facts.recipe}, {"build", facts.build},    {"host", facts.host},
          {"cpus", facts.cpus},     {"ranks", position.ranks}, {"local_rank", position.local_rank}};
}

/// The facts of all ranks, indexed by rank; null for those that did not join in time.
std::vector<Json> wait_for_all(c10d::Store& store, const RendezvousOptions& options) {
  std::vector<Json> facts(static_cast<size_t>(options.position.ranks));
  const auto began = Clock::now();
  for (bool all = false; !all && seconds_since(began) < options.timeout_s; std::this_thread::sleep_for(kPollInterval)) {
    all = true;
    for (int64_t rank = 0; rank < options.position.ranks && seconds_since(began) < options.timeout_s; ++rank) {
      Json& each = facts[static_cast<size_t>(rank)];
      if (each.is_null() && store.check({rank_key("here", rank)}))
        each = parse_json(store.get_to_str(rank_key("here", rank)));
      all &= !each.is_null();
    }
  }
  return facts;
}

struct Admission {
  std::string why_not;  ///< empty: all ranks joined and agree
  ExitCode code = ExitCode::recipe;
};

/// Rank 0 decides for all ranks, so that all of them end with the same message.
Admission judge(const std::vector<Json>& facts, const RendezvousOptions& options) {
  std::vector<int64_t> missing;
  for (size_t rank = 0; rank < facts.size(); ++rank)
    if (facts[rank].is_null()) missing.push_back(static_cast<int64_t>(rank));
  if (!missing.empty())
    return {fmt::format("{} of {} did not join within {:g} s (parallel.timeout)", ranks_text(missing),
                        options.position.ranks, options.timeout_s),
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
    for (const auto began = Clock::now(); !store.check({kAdmission}); std::this_thread::sleep_for(kPollInterval))
      if (seconds_since(began) > timeout_s)
        throw UserError(fmt::format("rank 0 did not answer within {:g} s (parallel.timeout)", timeout_s),
                        ExitCode::peer);
    const Json answer = parse_json(store.get_to_str(kAdmission));
    if (!answer.at("why_not").get<std::string>().empty()) store.set(rank_key("left", options.position.rank), "1");
    return answer;
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {  // named recovery: c10d has no specific exception type
    throw_rank_0_lost(error, options);
  }
}

}  // namespace

void throw_rank_0_lost(const std::exception& error, const RendezvousOptions& options) {
  if (is_out_of_threads(error)) throw UserError(out_of_threads_text(), ExitCode::memory);
  log_debug("{}", error.what());
  throw UserError(fmt::format("rank 0 is gone, and with it the job's store; {}", options.kept), ExitCode::peer);
}

std::vector<Json> admit(c10d::Store& store, const RendezvousOptions& options, const RankFacts& mine,
                        const std::filesystem::path& port_file) {
  store.set(rank_key("here", options.position.rank), json_text(to_json(mine, options.position)));
  if (options.position.is_first()) return admit_all(store, options, port_file);
  const Json answer = wait_for_answer(store, options);
  if (const auto why_not = answer.at("why_not").get<std::string>(); !why_not.empty())
    throw PeerFailed(why_not, code_of_peer(answer.at("code").get<int>()));
  return answer.at("facts").get<std::vector<Json>>();
}

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

bool on_one_machine(const std::vector<Json>& facts) {
  return std::all_of(facts.begin(), facts.end(),
                     [&](const Json& each) { return each.at("host") == facts[0].at("host"); });
}

}  // namespace trainopt
