// Runs both halves of a step from recordings. A step whose shapes are new runs as it is written, on the stream that
// will be recorded; from the fourth of its kind on it is recorded, each half when it first comes, and replayed.
#pragma once

#include "device/graph.h"
#include "device/stream.h"
#include "train/build_context.h"
#include "train/step_runner.h"

#include <map>
#include <optional>
#include <vector>

namespace trainopt::cuda_graph {

// What a GraphRunner posts in a StepTrace, of the run so far.
inline constexpr const char *kEagerStepsLabel = "graph.eager_steps", *kReplayedStepsLabel = "graph.replayed_steps";
inline constexpr const char* kEndedLabel = "graph.recording_ended";     ///< 1: for want of memory
inline constexpr const char* kRecordingMsLabel = "graph.recording_ms";  ///< host time that recording them took
/// One step of the kind that is replayed most, the device idle before and after; 0: none.
inline constexpr const char *kEagerStepMsLabel = "graph.eager_step_ms",
                            *kReplayedStepMsLabel = "graph.replayed_step_ms";

class GraphRunner : public StepRunner {
 public:
  /// Of each kind: libraries load their kernels and choose their algorithms, gradients find their place, and the last
  /// one is timed.
  static constexpr int64_t kEagerSteps = 3;

  GraphRunner(const BuildContext& context, MakeGraph make_graph);

  at::Tensor micro_step(const StepBody& body, const Batch& micro) override;
  at::Tensor update_step(const StepBody& body) override;
  bool forget(bool for_good) override;
  void report(StepTrace& trace) const override;

 private:
  struct Recording {
    std::unique_ptr<Graph> graph;
    at::Tensor result;                  ///< gets its value with each replay
    std::vector<at::Tensor> gradients;  ///< of all parameters, as they are afterwards
  };
  using Key = std::vector<int64_t>;  ///< all that a recording fixes of a micro-batch
  /// Steps that begin with the same micro-batch, up to its numbers.
  struct Kind {
    int64_t eager_steps = 0, replayed_steps = 0;
    double eager_ms = 0, replayed_ms = 0;  ///< of one step each
    std::map<Key, Recording> micro_steps;
    Recording update;
  };

  static Key key_of(const Batch& micro);
  void begin_step(const Batch& micro);
  const Batch& in_its_place(const Key& key, const Batch& micro);
  at::Tensor recorded(Recording& recording, const std::function<at::Tensor()>& half);
  Recording record(const std::function<at::Tensor()>& half);
  at::Tensor replay(const Recording& recording);
  void set_gradients(const std::vector<at::Tensor>& gradients);
  void stop_recording();
  at::Tensor aside(const std::function<at::Tensor()>& work);
  void order(const Stream& first, const Stream& then);
  bool has_gradients() const;

  c10::Device device_;
  const ParameterStore& parameters_;
  at::Generator generator_;
  const int64_t& steps_done_;
  std::vector<int64_t> dumped_steps_;
  MakeGraph make_graph_;
  Stream side_;
  Event reached_;
  std::map<Key, Batch> places_;  ///< what recordings read their batch from
  std::map<Key, Kind> kinds_;
  Kind* kind_ = nullptr;              ///< of the step that is running
  const Graph* neighbour_ = nullptr;  ///< one of the recorded graphs
  bool replaying_ = false;            ///< the step that is running
  bool records_ = true;               ///< until memory runs out
  std::optional<Clock::time_point> timed_since_;
  int64_t eager_steps_ = 0, replayed_steps_ = 0;
  double recording_ms_ = 0;
};

}  // namespace trainopt::cuda_graph
