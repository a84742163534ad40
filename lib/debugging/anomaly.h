// `debug.anomaly`: the operation and the unit in which non-finite values begin, or whose backward failed.
#pragma once

#include "train/observe/autograd_hooks.h"
#include "train/observe/operation_listener.h"
#include "train/step_place.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainopt {

struct Plan;

/// Wraps the runner, the precision and the profiler's slot, and makes every step check its loss and gradients. Throws
/// UserError if steps are replayed, because then no operation runs.
void add_anomaly(Plan& plan);

// Finds the first operation of a step that turns finite values into non-finite ones, by checking the result of every
// operation that libtorch's dispatcher runs, of every node of backward, and of every unit of the model. Each check
// reads a value on the host.

class AnomalyWatch : public OperationListener {
 public:
  /// A step begins, perhaps again. Its findings and its record of forward operations are discarded.
  void begin_step(int64_t step);
  void begin_micro_batch();
  /// The update's label has begun already.
  void begin_update();
  /// What exists before the step's first operation. `what`: "the parameter fc.weight".
  void check_at_start(const std::string& what, const at::Tensor& values);
  /// The results of a unit of the model, which this project's own operations may have written unseen.
  void check_unit(const std::string& unit, const at::Tensor& input, const at::Tensor& output);
  /// The loss, before its backward. `expects_overflow`: of the gradients, because the loss will be scaled; they are
  /// then not judged.
  void check_loss(const at::Tensor& loss, bool expects_overflow);
  /// The gradients that a node of backward has computed.
  void check_node(const BackwardNode& node);

  /// The innermost operation that an exception ended in this micro-batch: "in aten::mm in the backward of aten::addmm
  /// of unit fc". Empty: none did.
  std::string failed() const;
  /// "in step 3 in aten::log in forward of unit layers.1: 4 of 128 values …". Empty: nothing was found in that step.
  std::string began(int64_t step) const;

  std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) override;
  void end(const at::RecordFunction& function, at::ObserverContext* of_start) override;

 private:
  struct Operation;
  /// Identifies a node of backward: the thread of its forward, and its number there.
  using NodeId = std::pair<uint64_t, int64_t>;
  struct ForwardOperation {
    std::string name, unit;
  };
  struct OpenNode {
    NodeId id;
    std::string name;
  };
  enum class Stage { start, forward, backward, update };

  Stage stage() const;
  bool judges(Stage stage) const;
  void remember_forward(const at::RecordFunction& function);
  void judge(const at::RecordFunction& function, const Operation& operation);
  /// "backward of aten::pow of unit fc".
  std::string backward_of(const NodeId& node, const std::string& name) const;
  /// "in aten::mul in the backward of aten::pow of unit fc", or "in aten::log in forward of unit fc".
  std::string place_of(const std::string& operation, uint64_t thread) const;
  void found(Stage stage, std::string text);

  mutable std::mutex mutex_;
  OpenLabels labels_;
  int64_t step_ = 0;
  bool expects_overflow_ = false;
  std::map<int64_t, std::map<Stage, std::string>> findings_;  ///< findings by step: the first of each stage
  std::map<NodeId, ForwardOperation> forward_;                ///< operations of the running micro-batch
  std::map<uint64_t, std::vector<OpenNode>> nodes_;           ///< open nodes by thread
  std::vector<std::string> own_operations_;                   ///< this project's own since the last unit
  std::string failed_;
};

}  // namespace trainopt
