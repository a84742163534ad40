#include "compare/numerics_tolerance.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace trainopt {
namespace {

// Rounding to bfloat16 turns and stretches gradients and updates of a small residual network about as much as the
// perturbed twin does; each of the two is one random draw. With these factors 360 correct changes agree
// (tests/unit/compare/numerics_faults.cpp); with a factor of 4 and no allowance for small tensors, some with bfloat16
// did not.
constexpr double kFactor = 5;
constexpr double kFewNumbers = 2;    // the distance of a tensor of n elements varies by 1/√n of itself between draws
constexpr double kNeighbours = 0.5;  // a tensor that the twin hardly moved may move by this share of the median
// Minimum tolerances, where the twin changes next to nothing. A step in bfloat16 (8 bits: 0.4 % per rounding) may still
// switch a ReLU that the twin did not, and with few samples and units each counts: it turned the gradient of 32 units
// over 8 samples by 0.17. The second still detects a tensor that is 10 % too long.
constexpr double kMinChord = 0.25, kMinNormChange = 0.03;
// A tensor that the twin turns by more than about 40° is half rounding noise in A: neither its direction nor its length
// alone is informative. A tensor that is informative may not be orthogonal to A's.
constexpr double kNoise = 0.7;
constexpr double kMaxChord = 1.4, kUnlimitedChord = 2;

double one_minus_cosine(double chord) { return chord * chord / 2; }

double median_chord(const std::vector<TensorPair>& pairs) {
  std::vector<double> angles;
  for (const TensorPair& pair : pairs) angles.push_back(pair.chord());
  if (angles.empty()) return 0;
  const auto middle = angles.begin() + static_cast<std::ptrdiff_t>(angles.size() / 2);
  std::nth_element(angles.begin(), middle, angles.end());
  return *middle;
}

}  // namespace

double TensorDistance::excess() const {
  return std::max(std::sqrt(direction.value / direction.tolerance), norm.value / norm.tolerance);
}

TensorDistance rounding_distance(const TensorPair& b, const TensorPair& twin, double typical_chord) {
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(1, b.numbers)));
  const double factor = kFactor * (1 + kFewNumbers / root);
  const double chord = std::max(twin.chord(), kNeighbours * typical_chord);
  const double max_angle = twin.chord() < kNoise ? std::clamp(factor * chord, kMinChord, kMaxChord) : kUnlimitedChord;
  // A change in a random direction stretches a vector of n elements by 1/√n of what it turns it.
  const double norm_change = std::max(twin.norm_change(), chord / root);
  return {.direction = {one_minus_cosine(b.chord()), one_minus_cosine(max_angle)},
          .norm = {b.norm_change(), std::max(factor * norm_change, kMinNormChange)}};
}

TensorAgreement rounding_agreement(const std::vector<TensorPair>& b, const std::vector<TensorPair>& twin) {
  std::map<std::string, TensorPair> of_twin;
  for (const TensorPair& pair : twin) of_twin.emplace(pair.name, pair);
  TensorAgreement result;
  const double typical_chord = median_chord(twin);
  double worst = -1;
  for (const TensorPair& pair : b) {
    const TensorPair& moved = of_twin[pair.name];  // zeros if neither A nor its twin has this gradient
    if (moved.chord() >= kNoise) continue;
    const TensorDistance distance = rounding_distance(pair, moved, typical_chord);
    ++result.tensors;
    if (!distance.direction.within_tolerance() || !distance.norm.within_tolerance()) ++result.beyond;
    if (!(distance.excess() > worst)) continue;
    worst = distance.excess();
    result.worst = pair.name;
    result.direction = distance.direction;
    result.norm = distance.norm;
    result.norm_ratio = pair.norm_ratio();
  }
  return result;
}

}  // namespace trainopt
