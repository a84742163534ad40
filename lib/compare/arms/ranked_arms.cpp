#include "compare/arms/ranked_arms.h"

#include "base/files/files.h"
#include "base/host_name.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "device/process.h"
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

namespace {

/// Ranks may share a file system, so each other rank has a folder of its own in the arm's.
ArmSpec spec_on_rank(const Json& request, const RankPosition& position) {
  ArmSpec spec = arm_spec_from(request.at("spec"));
  spec.folder = request.at("folder").get<std::string>();
  if (position.is_first()) return spec;
  spec.folder /= fmt::format("rank-{}", position.rank);
  create_folders(spec.folder);
  write_file(spec.folder / "recipe.yaml", request.at("recipe").get<std::string>());
  spec.recipe = load_recipe({.files = {spec.folder / "recipe.yaml"}, .overrides = {}}, position.ranks).recipe;
  return spec;
}

Json turn_json(const Turn& turn) {
  Json json = to_json(turn);
  json["cpu_outside_s"] = turn.cpu_outside_s;
  return json;
}

/// The rank that failed first has the reason; the others only lost it.
void throw_error_in(const std::vector<Json>& answers) {
  std::optional<size_t> found;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    if (!answers[rank].contains("error")) continue;
    if (!found || (answers[*found].at("reported_by_other_rank") && !answers[rank].at("reported_by_other_rank")))
      found = rank;
  }
  if (!found) return;
  throw UserError(fmt::format("rank {}: {}", *found, answers[*found].at("error").get<std::string>()),
                  static_cast<ExitCode>(answers[*found].at("exit_code").get<int>()));
}

}  // namespace

std::vector<Json> RankParts::ask(const Json& request, const Recipe* recipe) {
  require_sound();
  std::vector<Json> answers;
  try {
    gather_texts(*channel_, json_text(request));
    answers = exchange(answer(request, recipe));
  } catch (const std::exception& error) {            // named recovery: rank 0 still has what was measured
    const Failure failure = duties_.explain(error);  // before any arm is destroyed: that may wait for other ranks
    failure_.emplace(failure.message, failure.code);
    throw UserError(*failure_);
  }
  for (const Json& each : answers)
    if (const int signal = each.at("signal"); signal != 0) duties_.stopped_elsewhere(signal);
  throw_error_in(answers);
  return answers;
}

void RankParts::finish(int exit_code) {
  if (!failure_) gather_texts(*channel_, json_text(Json{{"finish", exit_code}}));
}

int RankParts::serve() try {
  while (true) {
    duties_.progress("waiting for rank 0");
    const Json request = parse_json(gather_texts(*channel_, "").front());
    if (request.contains("finish")) return request.at("finish");
    exchange(answer(request, nullptr));
  }
} catch (const std::exception& error) {
  duties_.explain(error);  // before any arm is destroyed: that may wait for other ranks
  throw;
}

std::vector<Json> RankParts::exchange(const Json& mine) {
  std::vector<Json> all;
  duties_.progress("waiting for the other ranks");
  for (const std::string& text : gather_texts(*channel_, json_text(mine))) all.push_back(parse_json(text));
  return all;
}

Json RankParts::answer(const Json& request, const Recipe* recipe) {
  const bool own_process = request.contains("make") ? request.at("own_process").get<bool>() : part(request).own_process;
  Json json;
  if (!own_process) {
    json = carry_out(request, recipe);
  } else {
    try {
      json = carry_out(request, recipe);
    } catch (const UserError& error) {  // named recovery: rank 0 decides what a failed arm means
      json = {{"error", error.what()},
              {"exit_code", static_cast<int>(error.code())},
              {"reported_by_other_rank", dynamic_cast<const PeerFailed*>(&error) != nullptr}};
    }
  }
  json["signal"] = duties_.stop_signal();
  return json;
}

Json RankParts::carry_out(const Json& request, const Recipe* recipe) {
  if (request.contains("make")) return make(request, recipe);
  if (request.contains("turn")) return {{"turn", turn_json(part(request).arm->turn(request.at("turn")))}};
  if (request.contains("facts")) return {{"facts", to_json(part(request).arm->facts())}};
  parts_.erase(request.at("arm").get<int64_t>());
  return Json::object();
}

Json RankParts::make(const Json& request, const Recipe* recipe) {
  const int64_t number = request.at("make");
  Part& part = parts_[number];
  part.own_process = request.at("own_process");
  ArmSpec spec = spec_on_rank(request, channel_->position());
  if (recipe) spec.recipe = *recipe;
  if (part.own_process) spec.rendezvous = duties_.rendezvous(fmt::format("arm-{}", number));
  duties_.progress("creating an arm");
  part.arm = mine_.make(spec, part.own_process ? ArmHost::own_process : ArmHost::this_process);
  return {{"host", host_name()}, {"cpus", allowed_cpus()}};
}

}  // namespace trainopt
