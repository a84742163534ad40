// A data set's fingerprint, small enough to store in a checkpoint, to check that a resumed run finds the same samples.
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
      content;  ///< changes with the files' names, sizes and order, or with their bytes if these are read anyway
  bool operator==(const DataIdentity&) const = default;
};

/// The first field that differs, as in "samples 10000 → 9000"; null if none does.
std::optional<std::string> first_difference(const DataIdentity& before, const DataIdentity& now);

}  // namespace trainopt
