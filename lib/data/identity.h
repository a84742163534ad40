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
  /// Of blocks of the files (file_blocks.h). Empty: the files are remote, there are none, `content` has all their
  /// bytes, or this was stored before blocks were read.
  std::string blocks = {};
  /// Of the files' times of change, of remote ones their ETags. The same data may have others: it was copied.
  std::string versions = {};
};

/// The first field that differs, as in "samples 10000 → 9000"; null if none does. Blocks are compared if both have any,
/// and versions never.
std::optional<std::string> first_difference(const DataIdentity& before, const DataIdentity& now);
/// Whether the files' versions differ; not if one of the two has none.
bool has_other_versions(const DataIdentity& before, const DataIdentity& now);

}  // namespace trainopt
