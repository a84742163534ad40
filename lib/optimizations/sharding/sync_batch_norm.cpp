#include "optimizations/sharding/sync_batch_norm.h"

#include "comm/communicator.h"
#include "device/differentiable.h"
#include "device/tensor.h"

namespace trainopt {
namespace {

/// All dimensions except the channels.
std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dimensions{0};
  for (int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

at::Tensor by_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

struct Statistics {
  at::Tensor mean, variance;  ///< [channels] float32, biased
  at::Tensor
      count;  ///< values per channel over all ranks; on the device, because ranks differ in an epoch's short last step
};

Statistics over_ranks(const at::Tensor& input, Communicator& communicator) {
  const auto [variance, mean] = at::var_mean(input.to(at::kFloat), all_but_channels(input), /*correction=*/0);
  const int64_t channels = mean.numel();
  const at::Tensor mine =
      at::cat({mean, variance, at::full({1}, static_cast<double>(input.numel() / channels), mean.options())});
  const at::Tensor all = at::empty({communicator.ranks(), 2 * channels + 1}, mine.options());
  communicator.all_gather(all, mine)->wait();
  const at::Tensor means = all.narrow(1, 0, channels), variances = all.narrow(1, channels, channels),
                   counts = all.narrow(1, 2 * channels, 1);
  const at::Tensor total = counts.sum();
  Statistics result;
  result.mean = (means * counts).sum(0) / total;
  result.variance = ((variances + (means - result.mean).square()) * counts).sum(0) / total;
  result.count = total;
  return result;
}

/// Normalises by the statistics of all ranks. Backward sums over the ranks, too.
at::Tensor normalize_by(const Statistics& all, const at::Tensor& input, const BatchNorm2d& norm,
                        Communicator& communicator) {
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    saved = {input, norm.weight, all.mean, all.variance, all.count};
    return std::get<0>(at::native_batch_norm(input, norm.weight, norm.bias, all.mean, all.variance, /*training=*/false,
                                             0, norm.epsilon));
  };
  const auto backward = [&communicator, epsilon = norm.epsilon](const BackwardCall& call) -> std::vector<at::Tensor> {
    const auto& saved = call.saved;
    const at::Tensor &images = saved[0], &scale = saved[1], &mean = saved[2];
    const at::Tensor inverse = (saved[3] + epsilon).rsqrt();
    const at::Tensor gradient = call.gradient.to(at::kFloat), x = images.to(at::kFloat);
    const auto dimensions = all_but_channels(images);
    const at::Tensor own_sum = gradient.sum(dimensions),
                     own_product = (gradient * (x - by_channel(mean, x))).sum(dimensions);
    at::Tensor sums = at::cat({own_sum, own_product}).div_(saved[4]);
    communicator.all_reduce(sums)->wait();
    const auto channels = mean.numel();
    // scale · inverse · (gradient - mean(gradient) - (x - mean) · inverse² · mean(gradient · (x - mean))), rearranged
    // into one factor for gradient, one for x and a constant
    const at::Tensor factor = scale * inverse, of_x = -factor * inverse.square() * sums.narrow(0, channels, channels);
    const at::Tensor rest = -factor * sums.narrow(0, 0, channels) - of_x * mean;
    const at::Tensor of_images =
        at::addcmul(by_channel(rest, x), gradient, by_channel(factor, x)).addcmul_(x, by_channel(of_x, x));
    return {of_images.to(images.scalar_type()), own_product * inverse, own_sum};
  };
  return differentiable({input, norm.weight, norm.bias}, forward, backward);
}

class SyncBatchNorm : public PlainBatchNormOperations {
 public:
  explicit SyncBatchNorm(Communicator& communicator) : communicator_(communicator) {}

  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                        const ForwardContext& context) const override {
    if (!context.training) return PlainBatchNormOperations::batch_norm(input, norm, context);
    const Statistics all = [&] {
      const at::NoGradGuard no_grad;
      Statistics found = over_ranks(input, communicator_);
      at::Tensor batches = norm.num_batches_tracked, mean = norm.running_mean, variance = norm.running_var;
      batches.add_(1);
      mean.lerp_(found.mean, norm.momentum);
      variance.lerp_(found.variance * (found.count / (found.count - 1)), norm.momentum);
      return found;
    }();
    return normalize_by(all, input, norm, communicator_);
  }

 private:
  Communicator& communicator_;
};

}  // namespace

std::unique_ptr<BatchNormOperations> make_sync_batch_norm(Communicator& communicator) {
  return std::make_unique<SyncBatchNorm>(communicator);
}

}  // namespace trainopt
