#include "compare/arms/arm.h"

#include "base/error.h"
#include "compare/arms/local_arm.h"
#include "compare/ceilings.h"
#include "compare/json_values.h"
#include "debugging/inject.h"
#include "recipe/make_plan.h"

#include <algorithm>

namespace trainopt {
namespace {

Json to_json(const RankShare& share) {
  return {{"peak_memory_mib", or_null(share.peak_memory_mib)},
          {"state_mib", share.state_mib},
          {"sent_mib", share.sent_mib}};
}

RankShare share_from(const Json& json) {
  return {.peak_memory_mib = optional_at<double>(json, "peak_memory_mib"),
          .state_mib = json.at("state_mib"),
          .sent_mib = json.at("sent_mib")};
}

/// Throws UserError for an unknown word.
Ceiling ceiling_of(std::string_view word) {
  for (const auto& choice : Choices<Ceiling>::all)
    if (choice.word == word) return choice.value;
  throw UserError(fmt::format("there is no ceiling of this name: {}", word));
}

}  // namespace

RankShare largest(const std::vector<RankShare>& ranks) {
  RankShare all;
  for (const RankShare& rank : ranks) {
    all.peak_memory_mib = std::max(all.peak_memory_mib, rank.peak_memory_mib);  // null is below every number
    all.state_mib = std::max(all.state_mib, rank.state_mib);
    all.sent_mib = std::max(all.sent_mib, rank.sent_mib);
  }
  return all;
}

Json to_json(const ArmFacts& facts) {
  Json ranks = Json::array();
  for (const RankShare& share : facts.ranks) ranks.push_back(to_json(share));
  return {{"step_samples", facts.step_samples},
          {"period", facts.period},
          {"time_to_first_step_s", facts.time_to_first_step_s},
          {"peak_memory_mib", or_null(facts.peak_memory_mib)},
          {"plan", facts.plan},
          {"receipts", facts.receipts},
          {"price_per_hour", or_null(facts.price_per_hour)},
          {"ranks", ranks}};
}

ArmFacts facts_from(const Json& json) {
  ArmFacts facts{.step_samples = json.at("step_samples"),
                 .time_to_first_step_s = json.at("time_to_first_step_s"),
                 .peak_memory_mib = optional_at<double>(json, "peak_memory_mib"),
                 .plan = json.at("plan"),
                 .receipts = json.at("receipts"),
                 .price_per_hour = {},
                 .ranks = {}};
  if (!facts.receipts.is_object()) throw UserError("an arm's receipts are not a JSON object", ExitCode::data);
  facts.period = json.value("period", int64_t{1});
  if (json.contains("price_per_hour")) facts.price_per_hour = optional_at<double>(json, "price_per_hour");
  if (json.contains("ranks"))
    for (const Json& share : json.at("ranks")) facts.ranks.push_back(share_from(share));
  return facts;
}

std::string_view meaning(Ceiling ceiling) {
  switch (ceiling) {
    case Ceiling::data:
      return "the first step's batches stay on the device and are reused in every step";
    case Ceiling::optimizer:
      return "gradients are computed and discarded";
    case Ceiling::logging:
      return "no records are written and no telemetry runs";
    case Ceiling::communication:
      return "exchanges return at once, without sending or waiting, and the learning rate is 0";
  }
  return "";
}

Json to_json(const ArmSpec& spec) {
  Json json = {{"without", spec.without ? Json(word_of(*spec.without)) : Json()},
               {"batch_seed", or_null(spec.batch_seed)},
               {"perturbed", or_null(spec.perturbed)},
               {"whole", spec.whole},
               {"faults", spec.faults},
               {"rendezvous", Json()}};
  if (const auto& meeting = spec.rendezvous)
    json["rendezvous"] = {{"host", meeting->host}, {"port", meeting->port}, {"job", meeting->job}};
  return json;
}

ArmSpec arm_spec_from(const Json& json) {
  ArmSpec spec;
  if (const auto word = optional_at<std::string>(json, "without")) spec.without = ceiling_of(*word);
  spec.batch_seed = optional_at<int64_t>(json, "batch_seed");
  spec.perturbed = optional_at<int64_t>(json, "perturbed");
  spec.whole = json.at("whole");
  spec.faults = json.at("faults").get<std::vector<std::string>>();
  if (const Json& meeting = json.at("rendezvous"); !meeting.is_null())
    spec.rendezvous = ArmRendezvous{.host = meeting.at("host"), .port = meeting.at("port"), .job = meeting.at("job")};
  return spec;
}

namespace {

void leave_out_pauses(Plan& plan) {
  plan.evaluation.reset();
  plan.checkpoint.every_n_steps.reset();
}

}  // namespace

Plan arm_plan(const ArmSpec& spec, const Machine& machine, const RankPosition& position) {
  Recipe recipe = spec.recipe;
  recipe.profiler.on = false;  // it would slow down some turns, and one process can hold only one recording
  recipe.debug = {};           // its checks slow steps down
  recipe.logging.dump = {};    // the arm dumps only what the comparison reads
  if (spec.without == Ceiling::logging) recipe.logging.sinks.clear();
  Plan plan = make_plan(recipe, machine, position);
  plan.steps.reset();
  plan.train.max_time.reset();
  plan.train.target = {};
  if (!spec.whole) leave_out_pauses(plan);
  if (plan.evaluation) plan.evaluation->at_end = false;
  plan.checkpoint.at_end = false;
  if (spec.batch_seed) plan.data.seed = static_cast<uint64_t>(*spec.batch_seed);
  if (spec.perturbed) begin_perturbed(plan, static_cast<uint64_t>(*spec.perturbed));
  if (spec.without == Ceiling::data)
    plan.data.wrap_batches = [](std::unique_ptr<BatchSource> batches) {
      return std::make_unique<ReplayedBatches>(std::move(batches));
    };
  if (spec.without == Ceiling::optimizer)
    plan.optimizer.wrap("ceiling", "whose updates are skipped",
                        [](const BuildContext&, std::unique_ptr<Optimizer>) { return std::make_unique<NoUpdates>(); });
  if (spec.without == Ceiling::communication)  // its gradients are not the job's: training with them could diverge
    std::visit([](auto& optimizer) { optimizer.lr = 0; }, plan.optimizer_config);
  std::vector<Injection> injections;
  for (const auto& fault : spec.faults) injections.push_back(parse_injection(fault));
  inject(plan, injections);
  return plan;
}

}  // namespace trainopt
