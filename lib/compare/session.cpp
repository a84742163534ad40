#include "compare/session.h"

#include "base/log.h"
#include "base/print.h"
#include "compare/arms/ranked_arms.h"
#include "device/device.h"
#include "device/device_allocator.h"
#include "device/process.h"
#include "run/run_plan.h"
#include "run/signals.h"

#include <algorithm>
#include <csignal>
#include <map>

namespace trainopt {

Failure failure_of(JobMember& member, const std::exception& error) {
  const auto end = member.end_of(error);
  return {.message = end.message, .code = end.code, .reported_by_other_rank = end.reported_by_other_rank};
}

MeasureJob measure_job(std::span<const Recipe> recipes) {
  MeasureJob job{.timeout_s = 0, .recipes = {}};
  for (const Recipe& recipe : recipes) {
    job.timeout_s = std::max(job.timeout_s, recipe.parallel.timeout.seconds);
    job.recipes += recipe_yaml(recipe);
  }
  if (std::any_of(recipes.begin(), recipes.end(), [](const Recipe& each) { return each.debug != DebugConfig(); }))
    log_warning("debug is ignored here: its checks would slow down the steps that are measured");
  return job;
}

void warn_of_unused_profiler(std::span<const Recipe> recipes) {
  if (std::any_of(recipes.begin(), recipes.end(), [](const Recipe& recipe) { return recipe.profiler.on; }))
    log_warning("the profiler stays off: it would slow down some of the measured steps");
}

void refuse_profiler_alone(std::span<const Recipe> recipes) {
  std::map<std::string, std::string> profiler_of;  // keyed by the rest of the recipe
  for (Recipe rest : recipes) {
    const std::string profiler =
        (rest.profiler.on ? json_text(to_json(rest.profiler.options)) : "") + json_text(to_json(rest.debug));
    rest.profiler = {};
    rest.debug = {};
    rest.name.clear();
    const auto [other, is_new] = profiler_of.emplace(recipe_yaml(rest), profiler);
    if (!is_new && other->second != profiler)
      throw UserError(
          "the recipes differ only in profiler or debug, which comparisons leave off; trainopt run with them shows "
          "what they cost");
  }
}

ArmSite site_of(JobMember& member, const Machine& machine, const Environment& environment) {
  ArmSite site{.machine = machine, .position = member.position()};
  site.complete_plan = [environment](Plan& plan) {
    add_process_settings(plan, environment);
    require_settings_of_this_job_only(plan.process, environment);
  };
  site.prepare = [&member, ready = false](const Plan& plan) mutable {
    if (!ready) {  // arms that share a process have the same settings
      apply(plan.process);
      open_device(plan.device);
      ready = true;
    }
    require_same_data(plan, member);
  };
  site.connect = [&member](at::Device device) { return member.connect(device); };
  site.progress = [&member](const char* stage, int64_t steps) { member.at(stage, steps); };
  return site;
}

namespace {

RankDuties duties_of(JobMember& member) {
  return {.rendezvous =
              [&member](const std::string& name) {
                const RendezvousOptions options = member.rendezvous_of(name);
                return ArmRendezvous{
                    .host = *options.address, .port = options.port, .job = options.job, .has_failed = [&member, name] {
                      return member.has_failed(name);
                    }};
              },
          .explain = [&member](const std::exception& error) { return failure_of(member, error); },
          .progress = [&member](const char* stage) { member.at(stage, 0); },
          .stop_signal = [] { return stop_signal().load(); },
          .stopped_elsewhere =
              [](int signal) {
                if (stop_signal() == 0) std::raise(signal);
              }};
}

}  // namespace

int measure_with(JobMember& member, const Machine& machine, const Environment& environment, const Measure& measure) {
  LocalArms mine(site_of(member, machine, environment));
  const auto explain = [&](const std::exception& error) { return failure_of(member, error); };
  if (member.is_single()) return measure(mine, explain);
  constexpr double kThinkingTimeS = 600;  // between turns rank 0 compares tensors and writes results, alone
  const auto channel = member.connect(at::kCPU, kThinkingTimeS);
  if (!member.is_first()) {
    log_only_errors();  // rank 0 says the same
    return serve_arms(channel, mine, duties_of(member));
  }
  RankedArms arms(channel, mine, duties_of(member));
  const int code = measure(arms, explain_plainly);  // RankedArms has explained what ranks throw
  arms.require_sound();
  arms.finish(code);
  return code;
}

int run_measurement(const Launch& launch, const MeasureJob& job, const Environment& environment,
                    const Measure& measure) {
  std::optional<JobMember> member;
  try {
    member.emplace(launch, job.timeout_s, job.recipes);
  } catch (const PeerFailed& error) {  // named recovery: another rank reports it
    log_debug("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const UserError& error) {
    throw UserError(fmt::format("rank {}: {}", launch.position.rank, error.what()), error.code());
  }
  if (member->is_single()) return measure_with(*member, machine_of(*member, environment), environment, measure);
  try {
    return measure_with(*member, machine_of(*member, environment), environment, measure);
  } catch (const std::exception& error) {  // named recovery: all ranks of a job end together
    const bool of_rank = member->has_ended() || !member->is_first() || dynamic_cast<const LostRank*>(&error);
    const auto end = member->end_of(error);
    if (of_rank)
      report_end(end, *member);
    else  // rank 0 conducts the measurement, which failed
      print_error(end.message);
    member->exit_without_other_ranks(static_cast<int>(end.code));
  }
}

}  // namespace trainopt
