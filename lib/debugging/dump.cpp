#include "debugging/dump.h"

#include "base/files/files.h"
#include "device/tensor.h"
#include "model/weights_file.h"
#include "train/plan.h"

#include <algorithm>

namespace trainopt {
namespace {

/// What the three wrappers below collect during the current step.
struct Gathered {
  Gathered(DumpConfig chosen, RankDumps of_ranks) : config(std::move(chosen)), ranks(of_ranks) {}

  bool wants(DumpKind kind) const {
    return std::find(config.steps.begin(), config.steps.end(), step()) != config.steps.end() &&
           std::find(config.what.begin(), config.what.end(), kind) != config.what.end();
  }

  int64_t step() const { return *steps_done + 1; }

  DumpConfig config;
  RankDumps ranks;
  const int64_t* steps_done = nullptr;
  std::vector<at::Tensor> outputs;
  NamedTensors tensors;
};

class DumpingTask : public Task {
 public:
  DumpingTask(std::unique_ptr<Task> inner, std::shared_ptr<Gathered> gathered)
      : inner_(std::move(inner)), gathered_(std::move(gathered)) {}

  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                  const ForwardContext& context) const override {
    auto output = inner_->loss(model, input, target, context);
    if (gathered_->wants(DumpKind::outputs)) {
      const at::NoGradGuard no_grad;  // a language model's loss leaves its logits out; here without dropout
      const at::Tensor outputs = output.outputs.defined() ? output.outputs : model.forward(input, {});
      gathered_->outputs.push_back(outputs.detach().to(at::kFloat));
    }
    return output;
  }
  TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                             const ForwardContext& context) const override {
    return inner_->evaluation_loss(model, input, target, context);
  }
  Metrics metrics() const override { return inner_->metrics(); }
  at::Tensor correct(const at::Tensor& outputs, const at::Tensor& target) const override {
    return inner_->correct(outputs, target);
  }

 private:
  std::unique_ptr<Task> inner_;
  std::shared_ptr<Gathered> gathered_;
};

/// Each rank has its own outputs and, with sharding, its own gradients.
std::filesystem::path folder_of_rank(const BuildContext& context) {
  const auto dump = context.run_dir / "dump";
  const int64_t rank = context.plan.position.rank;
  return rank == 0 ? dump : dump / fmt::format("rank-{}", rank);
}

/// Collects the gradients after unscaling and before clipping.
class DumpingPrecision : public WrappedPrecision {
 public:
  DumpingPrecision(std::unique_ptr<Precision> inner, const ParameterStore& parameters,
                   std::shared_ptr<Gathered> gathered)
      : WrappedPrecision(std::move(inner)), parameters_(parameters), gathered_(std::move(gathered)) {}

  at::Tensor unscale(Gradients& gradients) override {
    at::Tensor overflow = WrappedPrecision::unscale(gradients);
    if (!gathered_->wants(DumpKind::gradients)) return overflow;
    std::vector<at::Tensor> values;
    for (const at::Tensor& each : gradients.tensors())
      values.push_back(each.defined() ? gradients.value(each.detach()) : each);
    const NamedTensors all = gathered_->ranks == RankDumps::complete ? parameters_.complete(values)
                                                                     : parameters_.ParameterStore::complete(values);
    for (const auto& [name, value] : all) gathered_->tensors.emplace_back("gradients." + name, value.clone());
    return overflow;
  }

 private:
  const ParameterStore& parameters_;
  std::shared_ptr<Gathered> gathered_;
};

/// Collects the buffers at the end of the step and writes the dump.
class DumpingRunner : public StepRunner {
 public:
  DumpingRunner(std::unique_ptr<StepRunner> inner, const BuildContext& context, std::shared_ptr<Gathered> gathered)
      : inner_(std::move(inner)),
        model_(*context.model),
        folder_(folder_of_rank(context)),
        writes_(gathered->ranks == RankDumps::each || context.plan.position.is_first()),
        gathered_(std::move(gathered)) {}

  at::Tensor micro_step(const StepBody& body, const Batch& micro) override { return inner_->micro_step(body, micro); }
  bool drop_state(bool permanently) override {  // an interrupted step runs again and collects again
    gathered_->outputs.clear();
    gathered_->tensors.clear();
    return inner_->drop_state(permanently);
  }
  void report(StepTrace& trace) const override { inner_->report(trace); }

  at::Tensor update_step(const StepBody& body) override {
    at::Tensor norm = inner_->update_step(body);
    if (gathered_->wants(DumpKind::buffers))
      for (const auto& [name, buffer] : model_.buffers()) gathered_->tensors.emplace_back("buffers." + name, buffer);
    if (!gathered_->outputs.empty()) gathered_->tensors.emplace_back("outputs", at::cat(gathered_->outputs));
    if (!gathered_->tensors.empty() && writes_) {
      create_folders(folder_);
      save_tensors(folder_ / fmt::format("step-{:08}.safetensors", gathered_->step()), gathered_->tensors);
    }
    gathered_->outputs.clear();
    gathered_->tensors.clear();
    return norm;
  }

 private:
  std::unique_ptr<StepRunner> inner_;
  const Model& model_;
  std::filesystem::path folder_;
  bool writes_;
  std::shared_ptr<Gathered> gathered_;
};

}  // namespace

void add_dump(Plan& plan, RankDumps ranks) {
  if (plan.logging.dump.steps.empty()) return;
  const auto gathered = std::make_shared<Gathered>(plan.logging.dump, ranks);
  plan.task.wrap("logging.dump", "dumping outputs",
                 [gathered](const BuildContext& context, std::unique_ptr<Task> inner) {
                   gathered->steps_done = context.steps_done;
                   return std::make_unique<DumpingTask>(std::move(inner), gathered);
                 });
  plan.precision.wrap("logging.dump", "dumping gradients",
                      [gathered](const BuildContext& context, std::unique_ptr<Precision> inner) {
                        return std::make_unique<DumpingPrecision>(std::move(inner), *context.parameters, gathered);
                      });
  plan.runner.wrap("logging.dump", "dumping buffers",
                   [gathered](const BuildContext& context, std::unique_ptr<StepRunner> inner) {
                     return std::make_unique<DumpingRunner>(std::move(inner), context, gathered);
                   });
}

}  // namespace trainopt
