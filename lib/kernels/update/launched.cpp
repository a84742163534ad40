#include "kernels/update/launched.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/tensors.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cmath>

namespace trainopt::kernels::update {
namespace {

/// Checked memory of tensors that are all on one device.
class Memory {
 public:
  Memory(const at::Tensor& like, at::DeviceType type) : device_(like.device()), guard_(device_) {
    TRAINOPT_CHECK(device_.type() == type);
  }

  float* numbers(const at::Tensor& tensor) const {
    TRAINOPT_CHECK(tensor.device() == device_ && tensor.scalar_type() == at::kFloat &&
                   tensor.is_non_overlapping_and_dense());
    return static_cast<float*>(tensor.data_ptr());
  }
  float* matching_data(const at::Tensor& parameter, const std::vector<at::Tensor>& tensors, size_t i) const {
    if (tensors.empty()) return nullptr;
    check_alike(parameter, tensors.at(i));
    return numbers(tensors[i]);
  }
  void* copy_of(const at::Tensor& parameter, const Tensors& tensors, size_t i) const {
    if (tensors.copies.empty() || !tensors.copies.at(i).defined()) return nullptr;
    const at::Tensor& copy = tensors.copies[i];
    check_alike(parameter, copy);
    TRAINOPT_CHECK(copy.device() == device_ && dtype_of(copy.scalar_type()) == dtype_of_copies(tensors) &&
                   copy.element_size() == 2);
    return copy.data_ptr();
  }
  static DType dtype_of_copies(const Tensors& tensors) {
    const auto first = std::find_if(tensors.copies.begin(), tensors.copies.end(),
                                    [](const at::Tensor& copy) { return copy.defined(); });
    return first == tensors.copies.end() ? DType::float32 : dtype_of(first->scalar_type());
  }
  const float* setting(const at::Tensor& value) const {
    if (!value.defined()) return nullptr;
    TRAINOPT_CHECK(value.dim() == 0);
    return numbers(value);
  }
  double* double_number(const at::Tensor& value) const {
    TRAINOPT_CHECK(value.device() == device_ && value.scalar_type() == at::kDouble && value.dim() == 0);
    return static_cast<double*>(value.data_ptr());
  }
  /// The memory of a table with two numbers for each of the parameters' rows.
  double* squares(const at::Tensor& table, const Tensors& tensors) const {
    TRAINOPT_CHECK(table.device() == device_ && table.scalar_type() == at::kDouble && table.dim() == 2 &&
                   table.size(1) == 2 && table.is_contiguous());
    check_rows(tensors, table.size(0));
    return static_cast<double*>(table.data_ptr());
  }
  std::vector<Part> parts(const Tensors& tensors) const {
    TRAINOPT_CHECK(tensors.gradients.size() == tensors.parameters.size());
    std::vector<Part> all;
    all.reserve(tensors.parameters.size());
    for (size_t i = 0; i < tensors.parameters.size(); ++i) {
      const at::Tensor& parameter = tensors.parameters[i];
      if (parameter.numel() == 0) continue;
      all.push_back({.parameter = numbers(parameter),
                     .gradient = matching_data(parameter, tensors.gradients, i),
                     .first = matching_data(parameter, tensors.first, i),
                     .second = matching_data(parameter, tensors.second, i),
                     .copy = copy_of(parameter, tensors, i),
                     .size = parameter.numel(),
                     .row = tensors.rows.empty() ? 0 : static_cast<int32_t>(tensors.rows.at(i))});
    }
    return all;
  }
  std::vector<Part> parts(const std::vector<at::Tensor>& gradients) const {
    std::vector<Part> all;
    for (const auto& gradient : gradients)
      if (gradient.numel() > 0)
        all.push_back({.parameter = nullptr,
                       .gradient = numbers(gradient),
                       .first = nullptr,
                       .second = nullptr,
                       .copy = nullptr,
                       .size = gradient.numel(),
                       .row = 0});
    return all;
  }
  UpdateInputs inputs(const Settings& settings, const Tensors& tensors) const {
    if (settings.ratios.defined()) check_rows(tensors, settings.ratios.numel());
    return {.learning_rate = setting(settings.learning_rate),
            .factor = setting(settings.factor),
            .skip_update = setting(settings.skip_update),
            .clears = settings.clears,
            .copies = dtype_of_copies(tensors),
            .ratios = settings.ratios.defined() ? numbers(settings.ratios) : nullptr};
  }
  at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType type) const {
    return at::empty(sizes, at::TensorOptions(device_).dtype(type));
  }
  void* queue() const { return queue_of(device_); }

 private:
  /// Checks that every parameter has a row of a table.
  static void check_rows(const Tensors& tensors, int64_t rows) {
    TRAINOPT_CHECK(tensors.rows.size() == tensors.parameters.size());
    for (const int64_t row : tensors.rows) TRAINOPT_CHECK(row >= 0 && row < rows);
  }
  /// Checks that the tensor has the sizes and strides of the parameter.
  static void check_alike(const at::Tensor& parameter, const at::Tensor& tensor) {
    TRAINOPT_CHECK(tensor.sizes() == parameter.sizes() && tensor.is_non_overlapping_and_dense());
    for (int64_t d = 0; d < tensor.dim(); ++d)
      TRAINOPT_CHECK(tensor.size(d) == 1 || tensor.stride(d) == parameter.stride(d));
  }

  at::Device device_;
  c10::DeviceGuard guard_;
};

/// `Rule`: AdamRule or LambRule.
template <class Rule>
AdamScalars moment_scalars(const Rule& rule, bool decoupled) {
  return {.log_beta1 = std::log(rule.beta1),
          .log_beta2 = std::log(rule.beta2),
          .first_share = static_cast<float>(1 - rule.beta1),
          .second_decay = static_cast<float>(rule.beta2),
          .second_share = static_cast<float>(1 - rule.beta2),
          .epsilon = rule.epsilon,
          .weight_decay = rule.weight_decay,
          .decoupled = decoupled,
          .counts_update = rule.counts_update};
}

LambScalars scalars_of(const LambRule& rule) {
  return {.moments = moment_scalars(rule, true), .corrects_bias = rule.bias_correction};
}

}  // namespace

int64_t LaunchedUpdateKernels::sgd(const SgdRule& rule, const Tensors& tensors, const Settings& settings) const {
  const Memory memory(settings.learning_rate, device_);
  TRAINOPT_CHECK(tensors.second.empty());
  const SgdScalars numbers{.momentum = rule.momentum,
                           .weight_decay = rule.weight_decay,
                           .keeps_momentum = !tensors.first.empty(),
                           .nesterov = rule.nesterov};
  return launches_.sgd(numbers, memory.parts(tensors), memory.inputs(settings, tensors), memory.queue());
}

int64_t LaunchedUpdateKernels::adam(const AdamRule& rule, const at::Tensor& updates, const Tensors& tensors,
                                    const Settings& settings) const {
  const Memory memory(settings.learning_rate, device_);
  TRAINOPT_CHECK(tensors.first.size() == tensors.parameters.size() &&
                 tensors.second.size() == tensors.parameters.size());
  const at::Tensor corrections = memory.allocate({2}, at::kFloat);
  return launches_.adam(moment_scalars(rule, rule.decoupled), memory.double_number(updates),
                        memory.numbers(corrections), memory.parts(tensors), memory.inputs(settings, tensors),
                        memory.queue());
}

int64_t LaunchedUpdateKernels::lion(const LionRule& rule, const Tensors& tensors, const Settings& settings) const {
  const Memory memory(settings.learning_rate, device_);
  TRAINOPT_CHECK(tensors.first.size() == tensors.parameters.size() && tensors.second.empty());
  const LionScalars numbers{.sign_share = static_cast<float>(1 - rule.beta1),
                            .first_share = static_cast<float>(1 - rule.beta2),
                            .weight_decay = rule.weight_decay};
  return launches_.lion(numbers, memory.parts(tensors), memory.inputs(settings, tensors), memory.queue());
}

int64_t LaunchedUpdateKernels::norms(const Tensors& tensors, const Settings& settings,
                                     const at::Tensor& squares) const {
  const Memory memory(settings.learning_rate, device_);
  const auto parts = memory.parts(tensors);
  const at::Tensor partials = memory.allocate({launches_.partials(parts)}, at::kDouble);
  return launches_.norms(parts, memory.inputs(settings, tensors), partials.mutable_data_ptr<double>(),
                         memory.squares(squares, tensors), memory.queue());
}

int64_t LaunchedUpdateKernels::lamb_moments(const LambRule& rule, const at::Tensor& updates, const Tensors& tensors,
                                            const Settings& settings, const at::Tensor& squares) const {
  const Memory memory(settings.learning_rate, device_);
  TRAINOPT_CHECK(tensors.first.size() == tensors.parameters.size() &&
                 tensors.second.size() == tensors.parameters.size());
  const auto parts = memory.parts(tensors);
  const at::Tensor partials = memory.allocate({launches_.partials(parts)}, at::kDouble),
                   corrections = memory.allocate({2}, at::kFloat);
  return launches_.lamb_moments(scalars_of(rule), memory.double_number(updates), memory.numbers(corrections), parts,
                                memory.inputs(settings, tensors), partials.mutable_data_ptr<double>(),
                                memory.squares(squares, tensors), memory.queue());
}

int64_t LaunchedUpdateKernels::lamb(const LambRule& rule, const at::Tensor& updates, const Tensors& tensors,
                                    const Settings& settings) const {
  const Memory memory(settings.learning_rate, device_);
  TRAINOPT_CHECK(tensors.first.size() == tensors.parameters.size() &&
                 tensors.second.size() == tensors.parameters.size() && settings.ratios.defined());
  const at::Tensor corrections = memory.allocate({2}, at::kFloat);
  LambScalars numbers = scalars_of(rule);
  numbers.moments.counts_update = false;
  return launches_.lamb(numbers, memory.double_number(updates), memory.numbers(corrections), memory.parts(tensors),
                        memory.inputs(settings, tensors), memory.queue());
}

Measured LaunchedUpdateKernels::measure(const std::vector<at::Tensor>& gradients, const at::Tensor& like) const {
  const Memory memory(like, device_);
  const auto parts = memory.parts(gradients);
  const at::Tensor partials = memory.allocate({launches_.partials(parts)}, at::kDouble);
  const Measured measured{memory.allocate({}, at::kDouble), memory.allocate({}, at::kFloat)};
  launches_.measure(parts, partials.mutable_data_ptr<double>(), measured.square_sum.mutable_data_ptr<double>(),
                    memory.numbers(measured.not_finite), memory.queue());
  return measured;
}

const UpdateKernels& cpu_kernels() {
  static const LaunchedUpdateKernels kernels(cpu_launches(), at::kCPU);
  return kernels;
}

const UpdateKernels* cuda_kernels() {
  static const UpdateLaunches* const launches = cuda_launches();
  if (launches == nullptr) return nullptr;
  static const LaunchedUpdateKernels kernels(*launches, at::kCUDA);
  return &kernels;
}

}  // namespace trainopt::kernels::update
