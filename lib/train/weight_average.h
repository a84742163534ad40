// An average of the weights over time; the plain part keeps none.
#pragma once

#include "train/archive.h"

namespace trainopt {

class ParameterStore;

class WeightAverage {
 public:
  virtual ~WeightAverage() = default;
  /// Writes nothing if `skip_update` (a float on the device, may be undefined) is 1.
  virtual void update(ParameterStore& parameters, const at::Tensor& skip_update) = 0;
  virtual void save(ArchiveWriter&) const {}
  virtual void load(const ArchiveReader&) {}
};

class NoAverage : public WeightAverage {
 public:
  void update(ParameterStore&, const at::Tensor&) override {}
};

}  // namespace trainopt
