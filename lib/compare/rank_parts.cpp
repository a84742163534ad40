#include "compare/rank_parts.h"

#include "base/files.h"
#include "base/host_name.h"
#include "comm/lost_rank.h"
#include "device/process.h"
#include "recipe/recipe_io.h"

namespace trainopt {
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
