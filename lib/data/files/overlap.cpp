#include "data/files/overlap.h"

#include "base/units.h"

#include <unordered_set>

namespace trainopt {
namespace {

/// Whether the identities say that the contents are equal, and not merely names and sizes.
bool is_copy(const Dataset& training, const Dataset& evaluation) {
  if (training.size() != evaluation.size()) return false;
  const DataIdentity &a = training.identity(), &b = evaluation.identity();
  return (!a.blocks.empty() || a.kind == "cifar10") && a.kind == b.kind && a.classes == b.classes &&
         a.content == b.content && a.blocks == b.blocks;
}

}  // namespace

std::string trained_on(const Dataset& training, const Dataset& evaluation) {
  const auto hashes = training.file_hashes(), evaluated = evaluation.file_hashes();
  const std::unordered_set<uint64_t> trained(hashes.begin(), hashes.end());
  int64_t count = 0;
  for (const uint64_t hash : evaluated) count += trained.contains(hash) ? 1 : 0;
  if (count == 0) return is_copy(training, evaluation) ? "it is a copy of the training data" : "";
  const auto files = std::ssize(evaluated);
  if (count < files) return fmt::format("{} of its {} are training files", count, counted(files, "file"));
  return files == 1 ? "its file is a training file"
                    : fmt::format("all its {} are training files", counted(files, "file"));
}

}  // namespace trainopt
