// An average of the weights over time, as torch.optim.swa_utils.AveragedModel computes it with use_buffers: the float
// buffers, such as batch-norm's statistics, are averaged too. NoAverage is the plain part.
#pragma once

#include "train/checkpoint/archive.h"
#include "train/config.h"

#include <memory>

namespace trainopt {

struct BuildContext;
class ParameterStore;

class WeightAverage {
 public:
  virtual ~WeightAverage() = default;
  /// Call after each update of the weights. Writes nothing if `skip_update` (a float on the device, may be undefined)
  /// is 1.
  virtual void update(ParameterStore& parameters, const at::Tensor& skip_update) = 0;
  /// Gives the parameters and buffers their averages; end_use() gives them their own values again. False, and nothing
  /// done, if there is no average yet. Whoever keeps copies of parameters must be told after each of the two calls.
  virtual bool begin_use() { return false; }
  virtual void end_use() {}
  virtual void save(ArchiveWriter&) const {}
  virtual void load(const ArchiveReader&) {}
};

class NoAverage : public WeightAverage {
 public:
  void update(ParameterStore&, const at::Tensor&) override {}
};

/// Which steps an average counts, and how.
struct AverageRule {
  std::optional<double> decay;  ///< exponential; null: all steps alike
  int64_t first_step = 1, every_n_steps = 1;
};

/// The context's store, model and step count must outlive it.
std::unique_ptr<WeightAverage> make_average(const AverageRule& rule, const BuildContext& context);

}  // namespace trainopt
