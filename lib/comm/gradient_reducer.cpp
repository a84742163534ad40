#include "comm/gradient_reducer.h"

#include "comm/c10d_communicator.h"
#include "comm/communicator.h"
#include "device/tensor.h"

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <deque>

namespace trainopt {
namespace {

constexpr int64_t kFirstBucketBytes = 1 << 20;  // PyTorch's value: small, so that the first exchange starts early

}  // namespace

/// The Reducer calls runHook() when a bucket is full and, after backward, parseHookResult() for each bucket in the same
/// order.
class GradientReducer::Sender : public c10d::CommHookInterface {
 public:
  Sender(Communicator& communicator, const GradientReducerOptions& options)
      : communicator_(communicator), options_(options) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    filled_.push_back({.gradients = bucket.getBuffer(), .sent = {}, .exchange = nullptr});
    if (options_.overlap || bucket.isLast())
      for (auto& each : filled_)
        if (!each.exchange) send(each);
    // Tell the Reducer that it is done: parseHookResult() does the waiting, which is where the time is measured.
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    future->markCompleted(bucket.getBuffer());
    return future;
  }

  at::Tensor parseHookResult(const c10::IValue&) override {
    Bucket bucket = std::move(filled_.front());
    filled_.pop_front();
    bucket.exchange->wait();
    if (!bucket.sent.is_same(bucket.gradients)) bucket.gradients.copy_(bucket.sent);
    return bucket.gradients;
  }

 private:
  struct Bucket {
    at::Tensor gradients, sent;
    std::unique_ptr<Exchange> exchange;
  };

  void send(Bucket& bucket) {
    bucket.sent = options_.wire_type ? bucket.gradients.to(*options_.wire_type) : bucket.gradients;
    bucket.exchange = communicator_.all_reduce(bucket.sent);
  }

  Communicator& communicator_;
  GradientReducerOptions options_;
  std::deque<Bucket> filled_;
};

struct GradientReducer::State {
  std::unique_ptr<c10d::Reducer> reducer;
};

GradientReducer::GradientReducer(Communicator& communicator, std::vector<at::Tensor> parameters,
                                 const GradientReducerOptions& options)
    : state_(std::make_unique<State>()) {
  const auto* several = dynamic_cast<ProcessGroupCommunicator*>(&communicator);
  TRAINOPT_CHECK(several != nullptr);
  const auto first = std::min(kFirstBucketBytes, options.bucket_bytes);
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      parameters, {static_cast<size_t>(first), static_cast<size_t>(options.bucket_bytes)},
      std::vector<bool>(parameters.size(), false), {}, {});
  std::reverse(buckets.begin(), buckets.end());  // backward fills the last parameters' bucket first
  std::vector<bool> sparse(parameters.size(), false);
  state_->reducer = std::make_unique<c10d::Reducer>(
      std::move(parameters), std::move(buckets), several->process_group(), std::move(sparse), options.bucket_bytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, std::unordered_map<size_t, std::string>(),
      first,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>());
  state_->reducer->register_comm_hook(std::make_unique<Sender>(communicator, options));
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::prepare() {
  or_lost_rank([&] {
    state_->reducer->prepare_for_forward();
    state_->reducer->rebuild_buckets();  // if rebuild() has not been called since the first backward
    state_->reducer->prepare_for_backward({});
  });
}

void GradientReducer::rebuild() {
  or_lost_rank([&] { state_->reducer->rebuild_buckets(); });
}

}  // namespace trainopt
