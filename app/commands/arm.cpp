// trainopt arm: the process that `compare` and `ablate` start for an arm that needs its own. With several ranks, each
// rank starts one. Internal, so hidden from --help.
#include "app/commands.h"
#include "base/files/files.h"
#include "comm/communicator.h"
#include "comm/nccl_environment.h"
#include "compare/arms/arm_process.h"
#include "compare/session.h"
#include "run/explain.h"
#include "run/run_plan.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <sys/prctl.h>

namespace trainopt {
namespace {

/// One rank's process of an arm.
class ArmHostProcess {
 public:
  using LoadRecipe = std::function<Recipe(int64_t ranks)>;

  ArmHostProcess(LoadRecipe load_recipe, std::filesystem::path folder, const Environment& environment)
      : load_recipe_(std::move(load_recipe)),
        folder_(std::move(folder)),
        environment_(environment),
        launch_(read_launch(environment)) {}

  void serve(int socket) {
    const int code = serve_arm(
        socket, [this]() -> Arm& { return make(); }, [this](const std::exception& error) { return failure(error); });
    if (code != 0 && member_ && !member_->is_single())
      member_->exit_without_other_ranks(code);  // the trainer's exchanges wait for ranks that will not answer
  }

 private:
  Arm& make() {
    ArmSpec spec;  // a bench starts this process without a file
    if (std::filesystem::exists(spec_file(folder_)))
      spec = arm_spec_from(parse_json(read_file(spec_file(folder_), ExitCode::storage)));
    spec.folder = folder_;
    spec.recipe = load_recipe_(launch_.position.ranks);
    member_ = join(spec);
    if (!member_->is_single()) set_nccl_trace_folder(folder_);
    ArmSite site = site_of(*member_, machine_of(*member_, environment_), environment_);
    site.began = began_;
    factory_.emplace(std::move(site));
    arm_ = factory_->make(spec, ArmHost::this_process);
    return *arm_;
  }

  std::unique_ptr<JobMember> join(const ArmSpec& spec) const {
    if (!spec.rendezvous) return std::make_unique<JobMember>(launch_, spec.recipe);
    return std::make_unique<JobMember>(RendezvousOptions{.position = launch_.position,
                                                         .address = spec.rendezvous->host,
                                                         .port = spec.rendezvous->port,
                                                         .external_store = true,
                                                         .job = spec.rendezvous->job,
                                                         .key = launch_.key,
                                                         .made_key = true,
                                                         .port_folder = {},
                                                         .timeout_s = spec.recipe.parallel.timeout.seconds,
                                                         .kept = "complete blocks measured before are kept"},
                                       recipe_yaml(spec.recipe));
  }

  Failure failure(const std::exception& error) {
    if (!member_) {
      const auto [message, code] = explain(error);
      return {.message = message, .code = code};
    }
    Failure found = failure_of(*member_, error);
    // The lost rank's own process may know more.
    found.reported_by_other_rank |= dynamic_cast<const LostRank*>(&error) != nullptr;
    return found;
  }

  const Clock::time_point began_ = Clock::now();
  const LoadRecipe load_recipe_;
  const std::filesystem::path folder_;
  const Environment& environment_;
  const Launch launch_;
  std::unique_ptr<JobMember> member_;
  std::optional<LocalArms> factory_;
  std::shared_ptr<Arm> arm_;  ///< outlives the report of its failure
};

}  // namespace

Command add_arm(CLI::App& app) {
  CLI::App* command = app.add_subcommand("arm", "One arm of a comparison")->group("");
  const auto socket = std::make_shared<int>(-1);
  const auto folder = std::make_shared<std::string>();
  const auto recipes = std::make_shared<RecipeArguments>();
  command->add_option("--socket", *socket)->required();
  command->add_option("--folder", *folder)->required();
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    // Signals from the terminal reach the whole process group; the comparison decides what they mean.
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, SIG_IGN);
    // The parent may be killed; the arm must not keep training without it.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto load = [&](int64_t ranks) { return recipes->load(*command, ranks).recipe; };
    ArmHostProcess(load, *folder, context.environment).serve(*socket);
    return 0;
  };
}

}  // namespace trainopt
