// What a data set is, small enough to be kept in a checkpoint: a run that goes on must find the samples it left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainopt {

struct DataIdentity {
  std::string kind;  ///< "cifar10"
  int64_t samples = 0;
  int64_t classes = 0;
  std::string
      content;  ///< changes with the files' names, sizes and order, or with their bytes where these are read anyway
  bool operator==(const DataIdentity&) const = default;
};

/// The first field that differs, "samples 10000 → 9000"; null if none does.
std::optional<std::string> first_difference(const DataIdentity& before, const DataIdentity& now);

}  // namespace trainopt
