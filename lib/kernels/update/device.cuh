// The launches of the kernels in device_rules.cuh and device_sums.cuh. Include on_device.cuh or its host counterpart
// first.
#pragma once

#include "kernels/update/device_sums.cuh"

namespace trainopt::kernels::update {
namespace {

class DeviceUpdateLaunches : public UpdateLaunches {
 public:
  int64_t sgd(const SgdScalars& rule, const std::vector<Part>& parts, const UpdateInputs& inputs,
              void* queue) const override {
    return rule.keeps_momentum ? run(Sgd<true>(rule), parts, inputs, queue)
                               : run(Sgd<false>(rule), parts, inputs, queue);
  }

  int64_t adam(const AdamScalars& rule, double* updates, float* corrections, const std::vector<Part>& parts,
               const UpdateInputs& inputs, void* queue) const override {
    launch(queue, 1, 1, count, rule, updates, corrections, inputs);
    return 1 + (rule.decoupled ? run(Adam<true>(rule, corrections), parts, inputs, queue)
                               : run(Adam<false>(rule, corrections), parts, inputs, queue));
  }

  int64_t lion(const LionScalars& rule, const std::vector<Part>& parts, const UpdateInputs& inputs,
               void* queue) const override {
    return run(Lion(rule), parts, inputs, queue);
  }

  int64_t norms(const std::vector<Part>& parts, const UpdateInputs& inputs, double* partials, double* squares,
                void* queue) const override {
    return 2 * each_table(parts, [&](const Table& table, int64_t blocks, int64_t before) {
             launch(queue, blocks, kThreads, update::norms, table, inputs, partials + 2 * before);
             launch(queue, table.count, kFoldRowThreads, fold_rows, table, partials + 2 * before, blocks, squares);
           });
  }

  int64_t lamb_moments(const LambScalars& rule, double* updates, float* corrections, const std::vector<Part>& parts,
                       const UpdateInputs& inputs, double* partials, double* squares, void* queue) const override {
    launch(queue, 1, 1, count_lamb, rule, updates, corrections, inputs);
    return 1 + 2 * each_table(parts, [&](const Table& table, int64_t blocks, int64_t before) {
                 launch(queue, blocks, kThreads, update::lamb_moments, table, rule, corrections, inputs,
                        partials + 2 * before);
                 launch(queue, table.count, kFoldRowThreads, fold_rows, table, partials + 2 * before, blocks, squares);
               });
  }

  int64_t lamb(const LambScalars& rule, double* updates, float* corrections, const std::vector<Part>& parts,
               const UpdateInputs& inputs, void* queue) const override {
    launch(queue, 1, 1, count_lamb, rule, updates, corrections, inputs);
    return 1 + run(Lamb(rule, corrections), parts, inputs, queue);
  }

  int64_t partials(const std::vector<Part>& parts) const override {
    int64_t blocks = 0;
    for (const Part& part : parts) blocks += blocks_of(part.size);
    return 2 * blocks;
  }

  void measure(const std::vector<Part>& parts, double* partials, double* square_sum, float* not_finite,
               void* queue) const override {
    each_table(parts, [&](const Table& table, int64_t blocks, int64_t before) {
      launch(queue, blocks, kThreads, update::measure, table, partials + 2 * before);
    });
    launch(queue, 1, kFoldThreads, fold, partials, this->partials(parts) / 2, square_sum, not_finite);
  }

 private:
  template <class Rule>
  static int64_t run(const Rule& rule, const std::vector<Part>& parts, const UpdateInputs& inputs, void* queue) {
    return each_table(parts, [&](const Table& table, int64_t blocks, int64_t) {
      launch(queue, blocks, kThreads, update<Rule>, table, rule, inputs);
    });
  }
};

}  // namespace
}  // namespace trainopt::kernels::update
