// An average of the weights over time; the plain part keeps none.
#pragma once

#include "train/archive.h"

namespace trainopt {

class ParameterStore;

class WeightAverage {
 public:
  virtual ~WeightAverage() = default;
  virtual void update(ParameterStore& parameters) = 0;
  virtual void save(ArchiveWriter&) const {}
  virtual void load(const ArchiveReader&) {}
};

class NoAverage : public WeightAverage {
 public:
  void update(ParameterStore&) override {}
};

}  // namespace trainopt
