// Data together with the settings it is loaded with.
#pragma once

#include "data/batch_source.h"

namespace trainopt {

struct LoadedData : DataSpec, LoaderSettings {};

/// The batches of `dataset`, which is null for synthetic images.
inline std::unique_ptr<BatchSource> make_batches(LoadedData data, std::shared_ptr<const Dataset> dataset,
                                                 const BatchRequest& request = {}) {
  data.dataset = std::move(dataset);
  return make_batches(static_cast<const DataSpec&>(data), static_cast<const LoaderSettings&>(data), request);
}

inline std::unique_ptr<Loader> make_loader(LoadedData data, std::shared_ptr<const Dataset> dataset,
                                           const BatchRequest& request = {}) {
  data.dataset = std::move(dataset);
  return make_loader(static_cast<const DataSpec&>(data), static_cast<const LoaderSettings&>(data), request);
}

}  // namespace trainopt
