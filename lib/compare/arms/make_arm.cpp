#include "compare/arms/make_arm.h"

#include "base/files/files.h"
#include "base/files/program_files.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "compare/arms/arm_process.h"
#include "compare/arms/local_arm.h"
#include "recipe/choose_workers.h"
#include "recipe/recipe_io.h"

namespace trainopt {

std::shared_ptr<Arm> LocalArms::make(const ArmSpec& spec, ArmHost host) {
  create_folders(spec.folder);
  write_file(spec.folder / "recipe.yaml", recipe_yaml(spec.recipe));
  if (host == ArmHost::own_process) return std::make_shared<ArmProcess>(this_program(), spec);
  LocalArmOptions options;
  options.exclusive_process = site_.began.has_value();
  options.whole = spec.whole;
  if (site_.began) options.began = *site_.began;
  const Plan of_arm = plan(with_workers(spec));
  if (site_.prepare) site_.prepare(of_arm);
  if (spec.without == Ceiling::communication)
    options.communicator = make_free_communicator(site_.position);
  else if (site_.connect)
    options.communicator = site_.connect(of_arm.device);
  if (site_.progress) options.progress = site_.progress;
  return std::make_shared<LocalArm>(of_arm, spec.folder, std::move(options));
}

ArmSpec LocalArms::with_workers(ArmSpec spec) const {
  std::vector<std::string> notes;
  spec.recipe = with_workers_chosen(spec.recipe, site_.machine, site_.position, notes);
  for (const auto& note : notes) log_info("{}: {}", spec.folder.filename().string(), note);
  return spec;
}

Plan LocalArms::plan(const ArmSpec& spec) const {
  Plan plan = arm_plan(spec, site_.machine, site_.position);
  if (site_.complete_plan) site_.complete_plan(plan);
  return plan;
}

ArmHost host_of(std::span<const Plan> plans) {
  for (const Plan& a : plans)
    for (const Plan& b : plans)
      if (a.process != b.process || (!a.device.is_cpu() && !can_share_process(a.backend, b.backend)))
        return ArmHost::own_process;
  return ArmHost::this_process;
}

ArmSpec twin_of(const ArmSpec& spec, Yardstick yardstick, int64_t number) {
  ArmSpec twin = spec;
  if (yardstick == Yardstick::reseeded)
    twin.batch_seed = spec.recipe.seed + 1 + number;
  else
    twin.perturbed = number;
  twin.folder += fmt::format("-{}-{}", word_of(yardstick), number + 1);
  return twin;
}

void remove_first_steps(const std::filesystem::path& folder) {
  std::error_code ignored;  // the files only take up space
  const auto remove_of = [&](const std::filesystem::path& arm) {
    std::filesystem::remove(update_file(arm), ignored);
    std::filesystem::remove_all(gradients_file(arm).parent_path(), ignored);
  };
  remove_of(folder);
  for (const auto& arm : std::filesystem::directory_iterator(folder, ignored)) remove_of(arm.path());
}

}  // namespace trainopt
