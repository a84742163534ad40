// trainopt roofline: measures what this machine can do, and what a recipe's model could.
#include "app/commands.h"
#include "app/status.h"
#include "base/files/files.h"
#include "base/log.h"
#include "base/print.h"
#include "base/units.h"
#include "comm/launch/launch_environment.h"
#include "data/loader_bench.h"
#include "device/device.h"
#include "device/meta_device.h"
#include "device/process.h"
#include "metrics/hardware/process_probe.h"
#include "recipe/make_plan.h"
#include "recipe/plan_machine.h"
#include "roofline/measure_exchanges.h"
#include "roofline/measure_machine.h"
#include "roofline/model_products.h"
#include "roofline/unit_limits.h"
#include "run/job_member.h"
#include "run/run_plan.h"
#include "run/signals.h"
#include "run/stored_peaks.h"
#include "run/version.h"

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <unistd.h>

namespace trainopt {
namespace {

struct RooflineArguments {
  RecipeArguments recipe;
  bool json = false, again = false;
  double seconds = 2;  ///< time for each peak
};

/// What a recipe's job could do at best.
struct JobLimits {
  std::vector<ModelProduct> products;
  std::vector<UnitLimit> units;
  std::optional<LoaderBenchResult> loader;  ///< measured with the recipe's threads; null without a loader
};

std::filesystem::path require_cache(const Environment& environment) {
  const auto cache = cache_folder(environment);
  if (!cache) throw UserError("set HOME or XDG_CACHE_HOME, where the measurement is kept");
  return *cache;
}

class RooflineSession {
 public:
  RooflineSession(const RooflineArguments& arguments, bool has_recipe, const Recipe& recipe,
                  const CommandContext& context, JobMember& member)
      : arguments_(arguments),
        has_recipe_(has_recipe),
        context_(context),
        member_(member),
        plan_(make_plan(recipe, machine_of(member, context.environment), member.position())) {}

  int run() {
    if (member_.is_first()) status_.emplace(context_.output);
    const int code = measure_and_print();
    if (member_.is_first()) say_again(context_.output);
    return code;
  }

 private:
  int measure_and_print() {
    const auto cache = require_cache(context_.environment);
    open_device(plan_.device);
    member_.open_communicator(plan_.device);
    const RooflineKey key = roofline_key(plan_.device, kBuild.version);
    std::optional<Roofline> roofline;
    if (member_.is_first() && !arguments_.again) roofline = stored_roofline(cache, key);
    const Json had =
        member_.from_rank_0("roofline", [&] { return Json(roofline ? exchanges_known(*roofline) : false); });
    if (member_.is_first() && !roofline) roofline = measure(key, cache);
    if (const int signal = stopped(); signal != 0) return 128 + signal;
    if (!member_.is_single() && !had.get<bool>()) {
      add_exchanges(roofline);
      if (const int signal = stopped(); signal != 0) return 128 + signal;
    }
    if (!member_.is_first()) return 0;
    store(cache, *roofline);
    const auto limits = has_recipe_ ? std::optional(limits_of_job(*roofline)) : std::nullopt;
    if (stop_signal() != 0) return 128 + stop_signal();  // the machine's peaks are complete, and kept
    status_.reset();
    if (arguments_.json)
      print_json(json_of(*roofline, limits));
    else
      print(*roofline, limits, roofline_file(cache, key));
    return 0;
  }

  std::string job() const { return exchange_job(plan_.device.is_cpu() ? "gloo" : "nccl", member_.position()); }
  bool exchanges_known(const Roofline& roofline) const { return roofline.exchanges.contains(job()); }

  void say(const std::string& what) { status_->line("measuring " + what); }

  /// The signal by which rank 0 was stopped, 0 for none: ranks that decided alone would wait for those that had
  /// stopped. Every rank must call it.
  int stopped() {
    return member_.from_rank_0("signal", [] { return Json(stop_signal().load()); }).get<int>();
  }

  /// nullopt: a signal stopped it.
  std::optional<Roofline> measure(const RooflineKey& key, const std::filesystem::path& cache) {
    at::set_num_threads(allowed_cores());  // launchers set fewer
    create_folders(cache / "trainopt");
    const std::vector<int> cpus = allowed_cpus();
    const auto busy_before = busy_seconds(cpus);
    const double own_before = process_cpu_seconds();
    const auto began = Clock::now();
    auto roofline = measure_machine(plan_.device, key,
                                    {.disk_folder = disk_folder(cache),
                                     .seconds = arguments_.seconds,
                                     .progress = [this](const std::string& what) { say(what); },
                                     .stop = &stop_signal()});
    const auto busy = busy_seconds(cpus);
    if (roofline && busy && busy_before)
      roofline->other_load_pct = 100 * (*busy - *busy_before - (process_cpu_seconds() - own_before)) /
                                 (seconds_since(began) * static_cast<double>(cpus.size()));
    return roofline;
  }

  /// Where the recipe's runs would go, if it is there.
  std::filesystem::path disk_folder(const std::filesystem::path& cache) const {
    std::error_code error;
    const std::filesystem::path output = std::filesystem::current_path();
    return has_recipe_ && ::access(output.c_str(), W_OK) == 0 ? output : cache / "trainopt";
  }

  /// Every rank must call it.
  void add_exchanges(std::optional<Roofline>& roofline) {
    at::set_num_threads(plan_.process.num_threads.value_or(plan_.machine.cores));
    if (member_.is_first()) say("exchanges");
    const auto peaks = measure_exchanges(*member_.communicator(), plan_.device);
    if (roofline) roofline->exchanges[job()] = peaks;
  }

  /// Incomplete if a signal stopped it.
  JobLimits limits_of_job(const Roofline& roofline) {
    at::set_num_threads(plan_.process.num_threads.value_or(plan_.machine.cores));
    JobLimits limits;
    say("the model's operations");
    ModelConfig config = plan_.model.config;
    config.weights.reset();
    limits.products = measure_products(config, plan_.model.input,
                                       {.device = plan_.device,
                                        .batch = plan_.data.batch_size,
                                        .memory_format = plan_.tensor_format.memory_format,
                                        .stop = &stop_signal()});
    limits.units = unit_limits_of(plan_, roofline);
    if (plan_.data.dataset && !plan_.data.device_dataset && stop_signal() == 0) {
      say("the loader");
      limits.loader =
          run_loader_bench(*make_loader(plan_.data, plan_.loader, {.format = plan_.tensor_format}), {.seconds = 3});
    }
    return limits;
  }

  static Json json_of(const Roofline& roofline, const std::optional<JobLimits>& limits) {
    Json json = to_json(roofline);
    if (!limits) return json;
    json["model_products"] = to_json(limits->products);
    json["units"] = to_json(limits->units);
    json["loader"] = nullptr;
    if (const auto& loader = limits->loader) {
      json["loader"] = {{"samples_per_s", loader->samples_per_s}};
      if (loader->shares) json["loader"].update(to_json(*loader->shares));
    }
    return json;
  }

  void print(const Roofline& roofline, const std::optional<JobLimits>& limits,
             const std::filesystem::path& file) const {
    print_text(roofline_text(roofline));
    if (limits) {
      print_out("\nthe model's operations, each alone, for {}\n{}", counted(plan_.data.batch_size, "sample"),
                products_text(limits->products));
      if (!limits->units.empty())
        print_out("\nits units in {}, forward and backward\n{}", product_type(plan_), unit_limits_text(limits->units));
      if (limits->loader) print_out("\nthe loader alone: {:.0f} samples/s\n", limits->loader->samples_per_s);
    }
    if (const std::string disturbed = disturbance(roofline); !disturbed.empty()) log_warning("{}", disturbed);
    print_out("\nmeasured in {:.0f} s; kept in {}\n", roofline.wall_s, file.string());
  }

  const RooflineArguments& arguments_;
  const bool has_recipe_;
  const CommandContext& context_;
  JobMember& member_;
  const Plan plan_;
  std::optional<Status> status_;  ///< on rank 0, until the result is printed
};

}  // namespace

Command add_roofline(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "roofline", "Measure this machine's peaks, with which runs are then compared; with a recipe, its model's too");
  const auto arguments = std::make_shared<RooflineArguments>();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->add_flag("--again", arguments->again, "Measure again what is known already");
  command->add_option("--seconds", arguments->seconds, "About so long for each peak; less finds lower ones")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  arguments->recipe.add_to(*command, "[RECIPE...] [key=value ...]");
  return [=](const CommandContext& context) {
    const Launch launch = read_launch(context.environment);
    CommandContext mine = of_rank(context);
    handle_signals();
    const bool has_recipe = !arguments->recipe.split(*command).files.empty();
    const Sources sources = arguments->recipe.split(*command);
    const Recipe recipe = load_recipe(sources, launch.position.ranks).recipe;
    JobMember member(launch, recipe);
    return RooflineSession(*arguments, has_recipe, recipe, mine, member).run();
  };
}

}  // namespace trainopt
