#include "kernels/meta.h"

#include "kernels/gelu/launched.h"
#include "kernels/head/launched.h"
#include "kernels/layer_norm/launched.h"
#include "kernels/linear_cross_entropy/launched.h"
#include "kernels/norm/launched.h"
#include "kernels/pool/launched.h"
#include "kernels/update/launched.h"

namespace trainopt::kernels {
namespace {

using namespace device;

class NoNormLaunches : public NormLaunches {
 public:
  int64_t partials(const NormOperands&) const override { return 0; }
  void statistics(const NormOperands&, const StatisticsOperands&, void*) const override {}
  void apply(const NormOperands&, bool, void*) const override {}
  void coefficients(const NormOperands&, Gate, const CoefficientOperands&, void*) const override {}
  void input_gradient(const NormOperands&, Gate, void*) const override {}
};

class NoPoolLaunches : public PoolLaunches {
 public:
  int64_t partials(const PoolOperands&) const override { return 0; }
  void pool(const PoolOperands&, void*) const override {}
  void coefficients(const PoolOperands&, const CoefficientOperands&, void*) const override {}
  void input_gradient(const PoolOperands&, void*) const override {}
};

class NoHeadLaunches : public HeadLaunches {
 public:
  void mean(const MeanOperands&, void*) const override {}
  void mean_gradient(const MeanOperands&, void*) const override {}
  void cross_entropy(const LossOperands&, void*) const override {}
  void mean_loss(const MeanLossOperands&, void*) const override {}
  void finish_gradient(const ScaleOperands&, void*) const override {}
};

class NoLayerNormLaunches : public LayerNormLaunches {
 public:
  void forward(const LayerNormOperands&, void*) const override {}
  int64_t partials(const LayerNormGradientOperands&) const override { return 0; }
  void backward(const LayerNormGradientOperands&, void*) const override {}
};

class NoGeluLaunches : public GeluLaunches {
 public:
  int64_t partials(const GeluOperands&) const override { return 0; }
  void forward(const GeluOperands&, void*) const override {}
  void backward(const GeluOperands&, const GeluSums&, void*) const override {}
};

class NoUpdateLaunches : public update::UpdateLaunches {
 public:
  int64_t sgd(const update::SgdScalars&, const std::vector<update::Part>&, const update::UpdateInputs&,
              void*) const override {
    return 0;
  }
  int64_t adam(const update::AdamScalars&, double*, float*, const std::vector<update::Part>&,
               const update::UpdateInputs&, void*) const override {
    return 0;
  }
  int64_t lion(const update::LionScalars&, const std::vector<update::Part>&, const update::UpdateInputs&,
               void*) const override {
    return 0;
  }
  int64_t norms(const std::vector<update::Part>&, const update::UpdateInputs&, double*, double*, void*) const override {
    return 0;
  }
  int64_t lamb_moments(const update::LambScalars&, double*, float*, const std::vector<update::Part>&,
                       const update::UpdateInputs&, double*, double*, void*) const override {
    return 0;
  }
  int64_t lamb(const update::LambScalars&, double*, float*, const std::vector<update::Part>&,
               const update::UpdateInputs&, void*) const override {
    return 0;
  }
  int64_t partials(const std::vector<update::Part>&) const override { return 0; }
  void measure(const std::vector<update::Part>&, double*, double*, float*, void*) const override {}
};

const NoHeadLaunches& no_head_launches() {
  static const NoHeadLaunches launches;
  return launches;
}

}  // namespace

const NormKernels& meta_norm_kernels() {
  static const NoNormLaunches launches;
  static const LaunchedNormKernels kernels(launches, at::kMeta);
  return kernels;
}

const PoolKernels& meta_pool_kernels() {
  static const NoPoolLaunches launches;
  static const LaunchedPoolKernels kernels(launches, at::kMeta);
  return kernels;
}

const HeadKernels& meta_head_kernels() {
  static const LaunchedHeadKernels kernels(no_head_launches(), at::kMeta);
  return kernels;
}

const LinearCrossEntropyKernels& meta_linear_cross_entropy_kernels() {
  static const LaunchedLinearCrossEntropy kernels(no_head_launches(), at::kMeta);
  return kernels;
}

const LayerNormKernels& meta_layer_norm_kernels() {
  static const NoLayerNormLaunches launches;
  static const LaunchedLayerNormKernels kernels(launches, at::kMeta);
  return kernels;
}

const GeluKernels& meta_gelu_kernels() {
  static const NoGeluLaunches launches;
  static const LaunchedGeluKernels kernels(launches, at::kMeta);
  return kernels;
}

const update::UpdateKernels& update::meta_kernels() {
  static const NoUpdateLaunches launches;
  static const LaunchedUpdateKernels kernels(launches, at::kMeta);
  return kernels;
}

}  // namespace trainopt::kernels
