#include "train/dump.h"

#include "base/files.h"
#include "model/tensor_file.h"
#include "train/plan.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace trainopt {
namespace {

/// What the two wrappers gather of the current step.
struct Gathered {
  explicit Gathered(DumpConfig chosen) : config(std::move(chosen)) {}

  bool wants(DumpKind kind) const {
    return std::find(config.steps.begin(), config.steps.end(), step()) != config.steps.end() &&
           std::find(config.what.begin(), config.what.end(), kind) != config.what.end();
  }

  int64_t step() const { return *steps_done + 1; }

  DumpConfig config;
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
    if (gathered_->wants(DumpKind::outputs)) gathered_->outputs.push_back(output.outputs.detach().to(at::kFloat));
    return output;
  }
  TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                             const ForwardContext& context) const override {
    return inner_->evaluation_loss(model, input, target, context);
  }
  at::Tensor correct(const at::Tensor& outputs, const at::Tensor& target) const override {
    return inner_->correct(outputs, target);
  }

 private:
  std::unique_ptr<Task> inner_;
  std::shared_ptr<Gathered> gathered_;
};

/// Each rank has outputs, and with sharding gradients, of its own.
std::filesystem::path folder_of_rank(const BuildContext& context) {
  const auto dump = context.run_dir / "dump";
  const int64_t rank = context.plan.position.rank;
  return rank == 0 ? dump : dump / fmt::format("rank-{}", rank);
}

class DumpingParameters : public ParameterStore {
 public:
  DumpingParameters(std::unique_ptr<ParameterStore> inner, const Model& model, std::filesystem::path folder,
                    std::shared_ptr<Gathered> gathered)
      : inner_(std::move(inner)), model_(model), folder_(std::move(folder)), gathered_(std::move(gathered)) {}

  const NamedTensors& parameters() const override { return inner_->parameters(); }
  Scope accumulate(bool is_last) override { return inner_->accumulate(is_last); }
  void finish_gradients() override { inner_->finish_gradients(); }
  std::vector<at::Tensor> gradients() const override { return inner_->gradients(); }
  std::shared_ptr<GradientPasses> passes() const override { return inner_->passes(); }
  void set_passes(std::weak_ptr<GradientPasses> passes) override { inner_->set_passes(std::move(passes)); }
  bool clears_with_zeros() const override { return inner_->clears_with_zeros(); }
  bool is_local() const override { return inner_->is_local(); }
  void updated() override { inner_->updated(); }
  void agree(at::Tensor& flag) override { inner_->agree(flag); }
  void save(ArchiveWriter& archive, const std::string& prefix, const std::vector<at::Tensor>& tensors) const override {
    inner_->save(archive, prefix, tensors);
  }
  void load(const ArchiveReader& archive, const std::string& prefix, std::vector<at::Tensor>& tensors) const override {
    inner_->load(archive, prefix, tensors);
  }
  void save_pending(ArchiveWriter& archive) const override { inner_->save_pending(archive); }
  void load_pending(const ArchiveReader& archive) override { inner_->load_pending(archive); }
  NamedTensors whole(const Model& model) const override { return inner_->whole(model); }
  int64_t parameter_bytes() const override { return inner_->parameter_bytes(); }
  int64_t gradient_bytes() const override { return inner_->gradient_bytes(); }

  at::Tensor clip(std::optional<double> max_norm) override {
    if (gathered_->wants(DumpKind::gradients)) {
      const auto all = inner_->gradients();
      for (size_t i = 0; i < all.size(); ++i)
        if (all[i].defined())
          gathered_->tensors.emplace_back("gradients." + parameters()[i].first,
                                          passes()->values(all[i].detach()).clone());
    }
    return inner_->clip(max_norm);
  }

  /// The last thing of a step: what was gathered is written here.
  void clear_gradients() override {
    inner_->clear_gradients();
    if (gathered_->wants(DumpKind::buffers))
      for (const auto& [name, buffer] : model_.buffers()) gathered_->tensors.emplace_back("buffers." + name, buffer);
    if (!gathered_->outputs.empty()) gathered_->tensors.emplace_back("outputs", at::cat(gathered_->outputs));
    if (!gathered_->tensors.empty()) {
      create_folders(folder_);
      save_tensors(folder_ / fmt::format("step-{:08}.safetensors", gathered_->step()), gathered_->tensors);
    }
    gathered_->outputs.clear();
    gathered_->tensors.clear();
  }

 private:
  std::unique_ptr<ParameterStore> inner_;
  const Model& model_;
  std::filesystem::path folder_;
  std::shared_ptr<Gathered> gathered_;
};

}  // namespace

void add_dump(Plan& plan) {
  if (plan.logging.dump.steps.empty()) return;
  const auto gathered = std::make_shared<Gathered>(plan.logging.dump);
  plan.task.wrap("logging.dump", "dumping outputs", [gathered](const BuildContext&, std::unique_ptr<Task> inner) {
    return std::make_unique<DumpingTask>(std::move(inner), gathered);
  });
  plan.parameters.wrap("logging.dump", "dumping gradients and buffers",
                       [gathered](const BuildContext& context, std::unique_ptr<ParameterStore> inner) {
                         gathered->steps_done = context.steps_done;  // the store is built before the task
                         return std::make_unique<DumpingParameters>(std::move(inner), *context.model,
                                                                    folder_of_rank(context), gathered);
                       });
}

}  // namespace trainopt
