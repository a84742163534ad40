// The step is recorded once and replayed: two launches instead of one per kernel.
#pragma once

#include "data/batch.h"
#include "device/graph.h"
#include "device/stream.h"
#include "optimizations/info.h"
#include "train/slot.h"

#include <array>
#include <map>
#include <optional>
#include <vector>

namespace trainopt {
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::cuda_graph {

inline constexpr Info kInfo{"cuda_graph", Exactness::same_bits};

void check(OptionChecks& checks);
/// Apply it last: it records what all other optimizations put into the plan.
Outcome apply(Plan& plan);

// Replays recordings of both halves of a step. The first three steps of each kind (see Kind) run eagerly, on the stream
// that will be recorded. From the fourth on, each half is recorded when it first occurs, and replayed.

// What a GraphRunner reports in a StepTrace; the figures cover the run so far.
inline constexpr const char *kEagerStepsLabel = "graph.eager_steps", *kReplayedStepsLabel = "graph.replayed_steps";
inline constexpr const char* kCopiesLabel = "graph.copies";             ///< tensors copied into recordings' buffers
inline constexpr const char* kEndedLabel = "graph.recording_ended";     ///< 1: because memory ran out
inline constexpr const char* kRecordingMsLabel = "graph.recording_ms";  ///< host time spent on recording
/// One step of the kind replayed most often, timed with the device idle before and after; 0: not measured.
inline constexpr const char *kEagerStepMsLabel = "graph.eager_step_ms",
                            *kReplayedStepMsLabel = "graph.replayed_step_ms";

class GraphRunner : public StepRunner {
 public:
  /// Eager steps of each kind before recording: libraries load kernels and choose algorithms, gradients are allocated,
  /// and the last of these steps is timed.
  static constexpr int64_t kEagerSteps = 3;

  GraphRunner(const BuildContext& context, MakeGraph make_graph);

  at::Tensor micro_step(const StepBody& body, const Batch& micro) override;
  at::Tensor update_step(const StepBody& body) override;
  bool drop_state(bool permanently) override;
  void report(StepTrace& trace) const override;

 private:
  struct Recording {
    std::unique_ptr<Graph> graph;
    at::Tensor result;                  ///< each replay writes it
    std::vector<at::Tensor> gradients;  ///< all parameters' gradients, as the recording leaves them
  };
  using Key = std::vector<int64_t>;  ///< everything about a micro-batch that a recording fixes
  /// Steps whose first micro-batch has the same Key.
  struct Kind {
    int64_t eager_steps = 0, replayed_steps = 0;
    double eager_ms = 0, replayed_ms = 0;  ///< one step each
    std::map<Key, Recording> micro_steps;
    Recording update;
  };

  /// What a buffer contains, to notice a batch that has not changed (a synthetic one). The weak reference keeps the
  /// storage's address from being reused, but not its memory.
  struct Copied {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t offset;
    uint32_t version;
    explicit Copied(const at::Tensor& from);
    bool operator==(const Copied& other) const;
  };
  /// The buffers that recordings read a batch from.
  struct StaticBatch {
    Batch batch;
    std::array<std::optional<Copied>, kBatchFields.size()> copied;
  };

  static Key key_of(const Batch& micro);
  void begin_step(const Batch& micro);
  const Batch& copy_to_static_batch(const Key& key, const Batch& micro);
  at::Tensor recorded(Recording& recording, const std::function<at::Tensor()>& half);
  Recording record(const std::function<at::Tensor()>& half);
  at::Tensor replay(const Recording& recording);
  void set_gradients(const std::vector<at::Tensor>& gradients);
  void stop_recording();
  at::Tensor run_on_side_stream(const std::function<at::Tensor()>& work);
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
  std::map<Key, StaticBatch> static_batches_;
  std::map<Key, Kind> kinds_;
  Kind* kind_ = nullptr;               ///< the current step's kind
  const Graph* pool_owner_ = nullptr;  ///< a recorded graph, whose memory pool new recordings share
  bool replaying_ = false;             ///< whether the current step is replayed
  bool records_ = true;                ///< false once memory has run out
  std::optional<Clock::time_point> timed_since_;
  int64_t eager_steps_ = 0, replayed_steps_ = 0;
  int64_t copies_ = 0;
  double recording_ms_ = 0;
};

}  // namespace trainopt::cuda_graph
