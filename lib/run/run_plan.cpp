#include "run/run_plan.h"

#include "base/log.h"
#include "base/units.h"
#include "comm/nccl_environment.h"
#include "device/device.h"
#include "device/device_allocator.h"
#include "device/process.h"
#include "recipe/choose_workers.h"
#include "recipe/make_plan.h"
#include "recipe/memory_remedies.h"
#include "recipe/plan_machine.h"
#include "run/stored_peaks.h"

#include <algorithm>
#include <iterator>

namespace trainopt {
namespace {

/// The CPUs that this process may use and that are local to its GPU; empty if that is all or none of them.
std::vector<int> allowed_cpus_local_to(at::Device device) {
  std::vector<int> allowed = allowed_cpus(), local = cpus_local_to(device_facts(device).pci_bus_id), both;
  std::sort(local.begin(), local.end());
  std::set_intersection(allowed.begin(), allowed.end(), local.begin(), local.end(), std::back_inserter(both));
  return both.size() == allowed.size() ? std::vector<int>() : both;
}

/// A CPU's process would be killed; on a GPU the trainer splits micro-batches when memory runs out.
void check_memory(const Plan& plan, const JobMember& member) {
  if (plan.memory->fits()) return;
  if (plan.device.is_cpu()) throw UserError(why_it_does_not_fit(plan), ExitCode::memory);
  if (member.is_first()) log_warning("{}", why_it_does_not_fit(plan));
}

}  // namespace

void warn_of_unused_gpu(const Recipe& recipe, const Machine& machine) {
  if (recipe.device == "auto" && !machine.gpu_trouble.empty())
    log_warning("this job uses the CPU: {}", machine.gpu_trouble);
}

Machine machine_of(const JobMember& member, const Environment& environment) {
  Machine machine = this_machine(environment);
  if (const auto cores = member.cores()) machine.cores = *cores;
  return machine;
}

void add_process_settings(Plan& plan, const Environment& environment) {
  if (plan.position.ranks > 1 && !plan.device.is_cpu()) {  // one of several GPUs
    plan.process.environment.merge(nccl_environment(plan.parallel.nccl));
    plan.process.cpus = allowed_cpus_local_to(plan.device);
    if (!plan.process.cpus.empty())
      plan.notes.push_back(
          fmt::format("uses only the {} local to its GPU", counted(std::ssize(plan.process.cpus), "CPU")));
  }
  // Kineto looks for a GPU and prints an error if there is none. Its level is 5 for nothing but fatal errors.
  if (plan.device.is_cpu() && !plan.profiler.is_plain() && !environment.contains("KINETO_LOG_LEVEL"))
    plan.process.environment["KINETO_LOG_LEVEL"] = "5";
  if (!plan.device.is_cpu())
    for (const auto& variable : allocator_variables_only_in(environment, plan.process))
      plan.notes.push_back(
          fmt::format("libtorch's GPU allocator is set in the environment, not in the recipe: {}", variable));
  require_no_contradiction(plan.process, environment);
}

Plan plan_run(const LoadedRecipe& loaded, const Machine& machine, const std::vector<Injection>& injections,
              const JobMember& member, const Environment& environment) {
  std::vector<std::string> choices;
  const Recipe recipe = with_workers_chosen(loaded.recipe, machine, member.position(), choices);
  Plan plan = make_plan(recipe, machine, member.position());
  add_memory_forecast(recipe, plan);
  warn_of_unused_gpu(loaded.recipe, machine);
  check_memory(plan, member);
  plan.notes.insert(plan.notes.begin(), loaded.notes.begin(), loaded.notes.end());
  plan.notes.insert(plan.notes.end(), choices.begin(), choices.end());
  const auto measured = measured_peaks(plan.device, environment);
  plan.peak = peak_of(plan, measured);
  if (const std::string disturbed = measured ? disturbance(*measured) : ""; !disturbed.empty())
    plan.notes.push_back(disturbed);
  inject(plan, injections);
  add_process_settings(plan, environment);
  return plan;
}

void require_same_data(const Plan& plan, JobMember& member) {
  const auto compare = [&](const char* name, const DataIdentity& mine) {
    const DataIdentity of_first = identity_from(member.from_rank_0(name, [&] { return to_json(mine); }));
    if (const auto difference = first_difference(of_first, mine))
      throw UserError(fmt::format("the {} differs from rank 0's: {}", name, *difference), ExitCode::data);
  };
  compare("data", plan.data.identity());
  compare("evaluation data", plan.evaluation ? plan.evaluation->data.identity() : DataIdentity{.kind = "none"});
}

}  // namespace trainopt
