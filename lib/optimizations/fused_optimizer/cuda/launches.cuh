// Launches out of the kernels. Include on_device.cuh or its twin for the host first.
#pragma once

#include "optimizations/fused_optimizer/cuda/kernels.cuh"

namespace trainopt::fused_optimizer {
namespace {

class KernelLaunches : public Launches {
 public:
  int64_t sgd(const SgdNumbers& rule, const std::vector<Part>& parts, const Given& given, void* queue) const override {
    return rule.keeps_momentum ? run(Sgd<true>{rule, 0}, parts, given, queue)
                               : run(Sgd<false>{rule, 0}, parts, given, queue);
  }

  int64_t adam(const AdamNumbers& rule, double* updates, float* corrections, const std::vector<Part>& parts,
               const Given& given, void* queue) const override {
    launch(queue, 1, 1, count, rule, updates, corrections, given);
    return 1 + (rule.decoupled ? run(Adam<true>{rule, corrections, 0, 0, 0}, parts, given, queue)
                               : run(Adam<false>{rule, corrections, 0, 0, 0}, parts, given, queue));
  }

  int64_t partials(const std::vector<Part>& parts) const override {
    int64_t blocks = 0;
    for (const Part& part : parts) blocks += blocks_of(part.size);
    return 2 * blocks;
  }

  void measure(const std::vector<Part>& parts, double* partials, double* square_sum, float* not_finite,
               void* queue) const override {
    each_table(parts, [&](const Table& table, int64_t blocks, int64_t before) {
      launch(queue, blocks, kThreads, fused_optimizer::measure, table, partials + 2 * before);
    });
    launch(queue, 1, kFoldThreads, fold, partials, this->partials(parts) / 2, square_sum, not_finite);
  }

 private:
  template <class Rule>
  static int64_t run(const Rule& rule, const std::vector<Part>& parts, const Given& given, void* queue) {
    return each_table(parts, [&](const Table& table, int64_t blocks, int64_t) {
      launch(queue, blocks, kThreads, update<Rule>, table, rule, given);
    });
  }
};

}  // namespace
}  // namespace trainopt::fused_optimizer
