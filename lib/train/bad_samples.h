// The samples that a run could not use: those that count towards data.max_bad_samples, and those that it lists.
#pragma once

#include "base/json.h"
#include "comm/config.h"
#include "data/sample_loader.h"

#include <vector>

namespace trainopt {

class ArchiveReader;
class ArchiveWriter;

/// The bad samples that one rank knows of.
struct BadSamples {
  std::vector<RefusedSample> training, evaluation;  ///< found by this rank; each of the two has the limit to itself
  Json earlier = Json::array();                     ///< found by ranks that are no more: listed, but no rank's count
};

/// The lines of bad_samples.jsonl: {"sample": 5, "name": …, "reason": …, "set": "training"}.
Json to_json(const BadSamples& bad);

/// Saves them as `rank`'s.
void save(const BadSamples& bad, const RankPosition& rank, ArchiveWriter& archive);
/// Gives each rank what it found itself, so that a resumed run ends where the uninterrupted one would. After a resume
/// with another number of ranks nobody is the one who found them: every count starts at 0, and the first rank lists
/// them all.
BadSamples load_bad_samples(const ArchiveReader& archive, const RankPosition& rank);
/// For a resume with other evaluation data: the samples found in the old data are listed, but no longer counted.
void stop_counting_evaluation(BadSamples& bad);

}  // namespace trainopt
