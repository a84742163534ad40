#include "kernels/update/launch.h"

#include "kernels/update/cpu/update_loops.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

namespace trainopt::kernels::update {
namespace {

constexpr int64_t kInCache = kMostValues;  ///< values processed at once: 16 KiB for four arrays
constexpr int64_t kChunk = 16 * kInCache;

struct Chunk {
  const Part* part;
  int64_t begin, end;
};

std::vector<Chunk> chunks_of(const std::vector<Part>& parts) {
  std::vector<Chunk> all;
  for (const Part& part : parts)
    for (int64_t begin = 0; begin < part.size; begin += kChunk)
      all.push_back({&part, begin, std::min(part.size, begin + kChunk)});
  return all;
}

/// Calls work(chunk, its index) for each chunk, in parallel.
template <class Work>
void each_chunk(const std::vector<Chunk>& chunks, const Work& work) {
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) work(chunks[static_cast<size_t>(i)], i);
  });
}

bool skips(const UpdateInputs& inputs) { return inputs.skip_update != nullptr && *inputs.skip_update > 0; }

Rates rates_of(const UpdateInputs& inputs, const Part& part) {
  return {.learning_rate = *inputs.learning_rate,
          .factor = inputs.factor == nullptr ? 1 : *inputs.factor,
          .ratio = inputs.ratios == nullptr ? 1 : inputs.ratios[part.row]};
}

/// Counts the update if it is not skipped. `rate`: what the first moment is multiplied by.
Corrections count(const AdamScalars& rule, double* updates, const UpdateInputs& inputs, double rate) {
  if (rule.counts_update && !skips(inputs)) *updates += 1;
  return {static_cast<float>(rate / -std::expm1(rule.log_beta1 * *updates)),
          static_cast<float>(1 / std::sqrt(-std::expm1(rule.log_beta2 * *updates)))};
}
Corrections count(const LambScalars& rule, double* updates, const UpdateInputs& inputs) {
  const Corrections corrections = count(rule.moments, updates, inputs, 1);
  return rule.corrects_bias ? corrections : Corrections{1, 1};
}

/// Calls squares_of(rates, part, begin, end) for all values and writes the sums of each part to its row.
template <class SquaresOf>
int64_t each_sum(const std::vector<Part>& parts, const UpdateInputs& inputs, double* partials, double* squares,
                 const SquaresOf& squares_of) {
  if (parts.empty()) return 0;
  const auto chunks = chunks_of(parts);
  each_chunk(chunks, [&](const Chunk& chunk, int64_t index) {
    const Rates rates = rates_of(inputs, *chunk.part);
    double *of_parameter = partials + 2 * index, *of_other = of_parameter + 1;
    *of_parameter = *of_other = 0;
    for (int64_t begin = chunk.begin; begin < chunk.end; begin += kInCache) {
      const Squares some = squares_of(rates, *chunk.part, begin, std::min(chunk.end, begin + kInCache));
      *of_parameter += some.of_parameter;
      *of_other += some.of_other;
    }
  });
  for (const Part& part : parts) squares[2 * part.row] = squares[2 * part.row + 1] = 0;
  for (size_t i = 0; i < chunks.size(); ++i)
    for (size_t k = 0; k < 2; ++k) squares[2 * static_cast<size_t>(chunks[i].part->row) + k] += partials[2 * i + k];
  return 1;
}

/// Calls update_range(rates, part, begin, end) for all values, writes copies and clears gradients. Returns the number
/// of launches.
template <class Update>
int64_t each_range(const std::vector<Part>& parts, const UpdateInputs& inputs, const Update& update_range) {
  if (parts.empty()) return 0;
  const bool skipped = skips(inputs);
  each_chunk(chunks_of(parts), [&](const Chunk& chunk, int64_t) {
    const Rates rates = rates_of(inputs, *chunk.part);
    for (int64_t begin = chunk.begin; begin < chunk.end; begin += kInCache) {
      const int64_t end = std::min(chunk.end, begin + kInCache);
      if (!skipped) {
        update_range(rates, *chunk.part, begin, end);
        if (chunk.part->copy != nullptr) narrow(*chunk.part, inputs.copies, begin, end);
      }
      if (inputs.clears) std::fill(chunk.part->gradient + begin, chunk.part->gradient + end, 0.0f);
    }
  });
  return 1;
}

class CpuUpdateLaunches : public UpdateLaunches {
 public:
  int64_t sgd(const SgdScalars& rule, const std::vector<Part>& parts, const UpdateInputs& inputs,
              void*) const override {
    return each_range(parts, inputs, [&](const Rates& rates, const Part& part, int64_t begin, int64_t end) {
      update(rule, rates, part, begin, end);
    });
  }

  int64_t adam(const AdamScalars& rule, double* updates, float*, const std::vector<Part>& parts,
               const UpdateInputs& inputs, void*) const override {
    const Corrections numbers = count(rule, updates, inputs, static_cast<double>(*inputs.learning_rate));
    return each_range(parts, inputs, [&](const Rates& rates, const Part& part, int64_t begin, int64_t end) {
      update(rule, rates, numbers, part, begin, end);
    });
  }

  int64_t lion(const LionScalars& rule, const std::vector<Part>& parts, const UpdateInputs& inputs,
               void*) const override {
    return each_range(parts, inputs, [&](const Rates& rates, const Part& part, int64_t begin, int64_t end) {
      update(rule, rates, part, begin, end);
    });
  }

  int64_t norms(const std::vector<Part>& parts, const UpdateInputs& inputs, double* partials, double* squares,
                void*) const override {
    return each_sum(parts, inputs, partials, squares, update::norms);
  }

  int64_t lamb_moments(const LambScalars& rule, double* updates, float*, const std::vector<Part>& parts,
                       const UpdateInputs& inputs, double* partials, double* squares, void*) const override {
    const Corrections numbers = count(rule, updates, inputs);
    return each_sum(parts, inputs, partials, squares,
                    [&](const Rates& rates, const Part& part, int64_t begin, int64_t end) {
                      return moments(rule, rates, numbers, skips(inputs), part, begin, end);
                    });
  }

  int64_t lamb(const LambScalars& rule, double* updates, float*, const std::vector<Part>& parts,
               const UpdateInputs& inputs, void*) const override {
    const Corrections numbers = count(rule, updates, inputs);
    return each_range(parts, inputs, [&](const Rates& rates, const Part& part, int64_t begin, int64_t end) {
      update(rule, rates, numbers, part, begin, end);
    });
  }

  int64_t partials(const std::vector<Part>& parts) const override {
    return 2 * static_cast<int64_t>(chunks_of(parts).size());
  }

  void measure(const std::vector<Part>& parts, double* partials, double* square_sum, float* not_finite,
               void*) const override {
    const auto chunks = chunks_of(parts);
    each_chunk(chunks, [&](const Chunk& chunk, int64_t index) {
      const PartOfMeasure part = update::measure(chunk.part->gradient + chunk.begin, chunk.end - chunk.begin);
      partials[2 * index] = part.square_sum;
      partials[2 * index + 1] = part.finite ? 0 : 1;
    });
    *square_sum = 0;
    *not_finite = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      *square_sum += partials[2 * i];
      if (partials[2 * i + 1] != 0) *not_finite = 1;
    }
  }
};

}  // namespace

const UpdateLaunches& cpu_launches() {
  static const CpuUpdateLaunches launches;
  return launches;
}

}  // namespace trainopt::kernels::update
