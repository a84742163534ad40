// Where a loader's time went, in percentages.
#pragma once

#include "base/json.h"
#include "data/loader_work.h"

namespace trainopt {

/// All zeros if no sample was loaded.
struct LoaderShares {
  double workers_busy_pct = 0;  ///< of the workers' time (without workers: the caller's): loading samples
  double read_pct = 0, decode_pct = 0, transform_pct = 0;  ///< of the busy time
  double other_pct = 0;  ///< the rest of the busy time: choosing the sample, drawing fake images, caching decoded ones
  double sample_us = 0;  ///< busy time per sample

  static LoaderShares of(const LoaderWork& work);
};

/// An object with these names.
Json to_json(const LoaderShares& shares);

}  // namespace trainopt
