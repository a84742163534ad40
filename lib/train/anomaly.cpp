#include "train/anomaly.h"

#include "comm/communicator.h"
#include "data/batch_source.h"
#include "device/gpu_error.h"
#include "device/memory.h"
#include "train/anomaly_watch.h"
#include "train/plan.h"
#include "train/profiled_units.h"

#include <c10/util/Exception.h>

namespace trainopt {
namespace {

constexpr const char* kAnomaly = "debug.anomaly";

class CheckedUnit : public WrappedUnit {
 public:
  CheckedUnit(std::unique_ptr<Unit> inner, std::shared_ptr<AnomalyWatch> watch)
      : WrappedUnit(std::move(inner)), watch_(std::move(watch)) {}
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    at::Tensor output = inner_->forward(input, context);
    if (context.training) watch_->check_unit(name(), input, output);
    return output;
  }

 private:
  std::shared_ptr<AnomalyWatch> watch_;
};

/// Listens while a micro-step or an update runs.
class CheckingRunner : public StepRunner {
 public:
  CheckingRunner(std::unique_ptr<StepRunner> inner, const BuildContext& context, std::shared_ptr<AnomalyWatch> watch)
      : inner_(std::move(inner)),
        model_(*context.model),
        parameters_(*context.parameters),
        steps_done_(*context.steps_done),
        watch_(std::move(watch)) {}

  at::Tensor micro_step(const StepBody& body, const Batch& micro) override {
    if (micro.is_first) begin_step();
    watch_->begin_micro_batch();
    watch_->check_at_start("the batch's input", micro.input);
    const Listening listening = listen();
    return inner_->micro_step(body, micro);
  }
  at::Tensor update_step(const StepBody& body) override {
    watch_->begin_update();
    const Listening listening = listen();
    return inner_->update_step(body);
  }
  bool drop_state(bool permanently) override { return inner_->drop_state(permanently); }
  void report(StepTrace& trace) const override { inner_->report(trace); }

 private:
  Listening listen() const {
    return Listening(ListensFor::anomalies, watch_, {.outputs = true, .backward_nodes = true});
  }

  void begin_step() {
    watch_->begin_step(steps_done_ + 1);
    for (const auto& [name, tensor] : parameters_.parameters()) watch_->check_at_start("the parameter " + name, tensor);
    for (const auto& [name, tensor] : model_.buffers()) watch_->check_at_start("the buffer " + name, tensor);
  }

  std::unique_ptr<StepRunner> inner_;
  const Model& model_;
  ParameterStore& parameters_;
  const int64_t& steps_done_;
  std::shared_ptr<AnomalyWatch> watch_;
};

class CheckingPrecision : public WrappedPrecision {
 public:
  CheckingPrecision(std::unique_ptr<Precision> inner, std::shared_ptr<AnomalyWatch> watch)
      : WrappedPrecision(std::move(inner)), watch_(std::move(watch)) {}

  void backward(const at::Tensor& loss) override {
    watch_->check_loss(loss, /*expects_overflow=*/loss_scale().defined());
    after_each_node(loss, [watch = watch_](const BackwardNode& node) { watch->check_node(node); });
    try {
      WrappedPrecision::backward(loss);
    } catch (const UserError&) {  // says what to do itself
      throw;
    } catch (const std::exception& error) {  // named recovery: the run ends, and says where
      if (is_out_of_memory(error) || gpu_fault(error) || watch_->failed().empty()) throw;
      const auto* torch = dynamic_cast<const c10::Error*>(&error);
      throw UserError(fmt::format("backward failed {}: {}", watch_->failed(),
                                  torch ? torch->what_without_backtrace() : error.what()),
                      ExitCode::bug);
    }
  }

 private:
  std::shared_ptr<AnomalyWatch> watch_;
};

class AnomalyReporter : public WrappedProfiler {
 public:
  AnomalyReporter(std::unique_ptr<StepProfiler> inner, const BuildContext& context,
                  std::shared_ptr<const AnomalyWatch> watch)
      : WrappedProfiler(std::move(inner)), communicator_(*context.communicator), watch_(std::move(watch)) {}

  std::string where_nonfinite_began(int64_t step) override {
    std::vector<std::string> found;
    const auto texts = gather_texts(communicator_, watch_->began(step));
    for (size_t rank = 0; rank < texts.size(); ++rank)
      if (!texts[rank].empty())
        found.push_back(texts.size() == 1 ? texts[rank] : fmt::format("on rank {} {}", rank, texts[rank]));
    if (found.empty()) return fmt::format("no operation of step {} was seen to make finite values non-finite", step);
    return fmt::format("it began {}", fmt::join(found, "; "));
  }

 private:
  Communicator& communicator_;
  std::shared_ptr<const AnomalyWatch> watch_;
};

}  // namespace

void add_anomaly(Plan& plan) {
  if (plan.replays_steps)
    throw UserError(fmt::format(
        "debug.anomaly checks operations as they run, and a replayed step runs none; remove it, or what replays: {}",
        plan.runner.describe()));
  // Each trainer has its own, made with the first of its parts.
  const auto watch = std::make_shared<std::shared_ptr<AnomalyWatch>>();
  plan.detects_nonfinite = true;
  plan.precision.wrap(kAnomaly, "checking every node of backward",
                      [watch](const BuildContext&, std::unique_ptr<Precision> inner) {
                        *watch = std::make_shared<AnomalyWatch>();
                        return std::make_unique<CheckingPrecision>(std::move(inner), *watch);
                      });
  plan.runner.wrap(kAnomaly, "checking the result of every operation",
                   [watch](const BuildContext& context, std::unique_ptr<StepRunner> inner) {
                     return std::make_unique<CheckingRunner>(std::move(inner), context, *watch);
                   });
  plan.profiler.wrap(kAnomaly, "naming where non-finite values begin",
                     [watch](const BuildContext& context, std::unique_ptr<StepProfiler> inner) {
                       label_units(*context.model);
                       context.model->wrap_units([&](std::unique_ptr<Unit> unit) {
                         return std::make_unique<CheckedUnit>(std::move(unit), *watch);
                       });
                       return std::make_unique<AnomalyReporter>(std::move(inner), context, *watch);
                     });
}

}  // namespace trainopt
