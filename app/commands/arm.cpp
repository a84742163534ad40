// trainopt arm: the process that `compare` and `ablate` start for an arm that needs its own. With several ranks, each
// rank starts one. Internal, so hidden from --help.
#include "app/commands.h"
#include "app/explain.h"
#include "app/run_plan.h"
#include "comm/free_communicator.h"
#include "compare/arm_service.h"
#include "compare/local_arm.h"
#include "compare/make_arm.h"
#include "device/device.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <sys/prctl.h>

namespace trainopt {
namespace {

struct ArmArguments {
  RecipeArguments recipes;
  int socket = -1;
  std::string folder, without;
  ArmSpec spec;
  ArmRendezvous rendezvous;
};

/// One rank's process of an arm.
class ArmHostProcess {
 public:
  ArmHostProcess(const CLI::App& command, const ArmArguments& arguments, const Environment& environment)
      : command_(command), arguments_(arguments), environment_(environment), launch_(read_launch(environment)) {}

  int serve() {
    const int code = serve_arm(
        arguments_.socket, [this] { return make(); }, [this](const std::exception& error) { return failure(error); });
    if (code != 0 && member_ && !member_->is_single())
      member_->exit_without_other_ranks(code);  // the trainer's exchanges wait for ranks that will not answer
    return 0;
  }

 private:
  /// Applies the plan's settings to the whole process, which is why the arm needs its own.
  std::unique_ptr<Arm> make() {
    ArmSpec spec = arguments_.spec;
    spec.recipe = arguments_.recipes.load(command_, launch_.position.ranks).recipe;
    spec.folder = arguments_.folder;
    if (!arguments_.without.empty()) spec.without = ceiling_of(arguments_.without);
    member_ = join(spec.recipe);
    LocalArmOptions options{.began = began_, .exclusive_process = true};
    Plan plan = arm_plan(spec, machine_of(*member_, environment_), member_->position());
    add_process_settings(plan, environment_);
    apply(plan.process);
    open_device(plan.device);
    require_same_data(plan, *member_);
    options.communicator = spec.without == Ceiling::communication ? make_free_communicator(member_->position())
                                                                  : member_->connect(plan.device);
    options.progress = [this](const char* stage, int64_t steps) { member_->at(stage, steps); };
    return std::make_unique<LocalArm>(std::move(plan), spec.folder, std::move(options));
  }

  std::unique_ptr<JobMember> join(const Recipe& recipe) const {
    if (launch_.position.ranks == 1) return std::make_unique<JobMember>(launch_, recipe);
    return std::make_unique<JobMember>(RendezvousOptions{.position = launch_.position,
                                                         .address = arguments_.rendezvous.host,
                                                         .port = arguments_.rendezvous.port,
                                                         .external_store = true,
                                                         .job = arguments_.rendezvous.job,
                                                         .port_folder = {},
                                                         .timeout_s = recipe.parallel.timeout.seconds,
                                                         .kept = "what was measured before is kept"},
                                       recipe_yaml(recipe));
  }

  Failure failure(const std::exception& error) {
    if (!member_) {
      const auto [message, code] = explain(error);
      return {.message = message, .code = code};
    }
    const auto end = member_->end_of(error);
    return {.message = end.message, .code = end.code, .reported_by_other_rank = end.reported_by_other_rank};
  }

  const Clock::time_point began_ = Clock::now();
  const CLI::App& command_;
  const ArmArguments& arguments_;
  const Environment& environment_;
  const Launch launch_;
  std::unique_ptr<JobMember> member_;
};

}  // namespace

Command add_arm(CLI::App& app) {
  CLI::App* command = app.add_subcommand("arm", "One arm of a comparison")->group("");
  const auto arguments = std::make_shared<ArmArguments>();
  command->add_option("--socket", arguments->socket)->required();
  command->add_option("--folder", arguments->folder)->required();
  command->add_option("--without-cost", arguments->without);
  command->add_option("--batch-seed", arguments->spec.batch_seed);
  command->add_flag("--perturbed", arguments->spec.perturbed);
  command->add_option("--inject", arguments->spec.faults)->allow_extra_args(false)->take_all();
  command->add_option("--host", arguments->rendezvous.host);
  command->add_option("--port", arguments->rendezvous.port);
  command->add_option("--job", arguments->rendezvous.job);
  arguments->recipes.add_to(*command);
  return [=](const CommandContext& context) {
    // Signals from the terminal reach the whole process group; the comparison decides what they mean.
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, SIG_IGN);
    // The parent may be killed; the arm must not keep training without it.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return ArmHostProcess(*command, *arguments, context.environment).serve();
  };
}

}  // namespace trainopt
