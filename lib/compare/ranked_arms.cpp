#include "compare/ranked_arms.h"

#include "base/log.h"
#include "compare/rank_parts.h"
#include "recipe/recipe_io.h"

#include <algorithm>
#include <set>

namespace trainopt {
namespace {

Json request_for(const ArmSpec& spec, ArmHost host, int64_t arm) {
  return {{"make", arm},
          {"own_process", host == ArmHost::own_process},
          {"recipe", recipe_yaml(spec.recipe)},
          {"folder", spec.folder.string()},
          {"spec", to_json(spec)}};
}

/// Whether two ranks may use the same CPU.
bool share_cpus(const Json& one, const Json& other) {
  if (one.at("host") != other.at("host")) return false;
  const auto cpus = one.at("cpus").get<std::set<int>>();
  return std::any_of(other.at("cpus").begin(), other.at("cpus").end(),
                     [&](const Json& cpu) { return cpus.contains(cpu); });
}

Turn turn_of_rank(const Json& json) {
  Turn turn = turn_from(json);
  turn.cpu_outside_s = json.at("cpu_outside_s");
  return turn;
}

/// After a failure the process is about to end, and destroying its arms could wait for ranks that will not answer.
void never_destroyed(std::shared_ptr<RankParts> parts) {
  static auto* const all = new std::vector<std::shared_ptr<RankParts>>;
  all->push_back(std::move(parts));
}

class RankedArm : public Arm {
 public:
  RankedArm(std::shared_ptr<RankParts> parts, const ArmSpec& spec, ArmHost host)
      : parts_(std::move(parts)), number_(parts_->next_arm()), folder_(spec.folder) {
    try {
      const auto answers = parts_->ask(request_for(spec, host, number_), &spec.recipe);
      for (const Json& each : answers) shares_cpus_.push_back(share_cpus(answers.front(), each));
    } catch (...) {  // on some ranks the arm may exist
      end();
      throw;
    }
  }
  ~RankedArm() override { end(); }

  Turn turn(int64_t steps) override {
    std::vector<Turn> of_ranks;
    for (const Json& answer : parts_->ask({{"turn", steps}, {"arm", number_}}))
      of_ranks.push_back(turn_of_rank(answer.at("turn")));
    steps_ += steps;
    return merged_turn(of_ranks, shares_cpus_);
  }
  ArmFacts facts() override {
    std::vector<ArmFacts> of_ranks;
    for (const Json& answer : parts_->ask({{"facts", true}, {"arm", number_}}))
      of_ranks.push_back(facts_from(answer.at("facts")));
    return merged_facts(of_ranks);
  }
  int64_t steps_taken() const override { return steps_; }
  const std::filesystem::path& folder() const override { return folder_; }

 private:
  void end() noexcept {
    try {
      parts_->ask({{"end", true}, {"arm", number_}});
    } catch (const std::exception& error) {  // the measurement has failed, and its user knows why
      log_debug("{}", error.what());
    }
  }

  std::shared_ptr<RankParts> parts_;
  int64_t number_;
  std::filesystem::path folder_;
  std::vector<bool> shares_cpus_;
  int64_t steps_ = 0;
};

}  // namespace

RankedArms::RankedArms(std::shared_ptr<Communicator> channel, ArmFactory& mine, RankDuties duties)
    : parts_(std::make_shared<RankParts>(std::move(channel), mine, std::move(duties))) {}
RankedArms::~RankedArms() {
  if (!parts_->is_sound()) never_destroyed(std::move(parts_));
}

std::shared_ptr<Arm> RankedArms::make(const ArmSpec& spec, ArmHost host) {
  return std::make_shared<RankedArm>(parts_, spec, host);
}
Plan RankedArms::plan(const ArmSpec& spec) const { return parts_->mine().plan(spec); }
bool RankedArms::is_sound() const { return parts_->is_sound(); }
void RankedArms::require_sound() const { parts_->require_sound(); }
void RankedArms::finish(int exit_code) { parts_->finish(exit_code); }

int serve_arms(std::shared_ptr<Communicator> channel, ArmFactory& mine, RankDuties duties) {
  auto parts = std::make_shared<RankParts>(std::move(channel), mine, std::move(duties));
  try {
    return parts->serve();
  } catch (...) {
    never_destroyed(std::move(parts));
    throw;
  }
}

Turn merged_turn(const std::vector<Turn>& of_ranks, const std::vector<bool>& shares_cpus) {
  Turn merged = of_ranks.front();
  for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
    const Turn& turn = of_ranks[rank];
    merged.seconds = std::max(merged.seconds, turn.seconds);
    merged.data_wait_s = std::max(merged.data_wait_s, turn.data_wait_s);
    if (!shares_cpus[rank]) continue;
    merged.cpu_s += turn.cpu_s;
    merged.cpu_outside_s += turn.cpu_s;
  }
  // A step ends when the last rank has ended it. The sum of each step's slowest time would be more than the turn took.
  std::vector<double> ends(of_ranks.size(), 0);
  double previous = 0;
  for (size_t step = 0; step < merged.step_ms.size(); ++step) {
    for (size_t rank = 0; rank < of_ranks.size(); ++rank)
      if (step < of_ranks[rank].step_ms.size()) ends[rank] += of_ranks[rank].step_ms[step];
    const double last = *std::max_element(ends.begin(), ends.end());
    merged.step_ms[step] = last - previous;
    previous = last;
  }
  return merged;
}

ArmFacts merged_facts(const std::vector<ArmFacts>& of_ranks) {
  ArmFacts merged = of_ranks.front();
  merged.ranks.clear();
  for (const ArmFacts& facts : of_ranks) {
    merged.time_to_first_step_s = std::max(merged.time_to_first_step_s, facts.time_to_first_step_s);
    if (facts.peak_memory_mib)
      merged.peak_memory_mib = std::max(merged.peak_memory_mib.value_or(0), *facts.peak_memory_mib);
    merged.ranks.insert(merged.ranks.end(), facts.ranks.begin(), facts.ranks.end());
  }
  return merged;
}

}  // namespace trainopt
