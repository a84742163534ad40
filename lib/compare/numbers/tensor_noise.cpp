#include "compare/numbers/tensor_noise.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace trainopt {
namespace {

// Limits of single tensors, in multiples of what the twins show, scaled to B's noise.
constexpr double kLengthTail = 7, kDirectionTail = 3;
// A tensor of several steps has fewer outliers than each of its parts.
constexpr double kLengthTailOfSeveral = 5.5;
// Limits of all tensors as one vector.
constexpr double kWholeTail = 5, kWholeDirectionTail = 4;
// Smaller distances are never beyond a limit. A step in bfloat16 may switch a ReLU that no twin did, and with few
// samples and units each counts: it turned the gradient of 32 units over 8 samples by 0.17. The others still detect a
// tensor that is 10 % too long.
constexpr double kMinChord = 0.25, kMinNormChange = 0.03, kMinNormChangeOfSeveral = 0.05;
// A tensor that the twins turn by more than about 40° is half rounding noise in A: neither its direction nor its length
// alone is informative. A tensor that is informative may not be orthogonal to A's.
constexpr double kNoise = 0.7;
constexpr double kMaxChord = 1.4, kUnlimitedChord = 2;
// A tensor that may be twice or half as long is not judged either.
constexpr double kAnyLength = 0.69;
// B may be at most so many times as noisy as the twins before the whole vector is beyond its limit.
constexpr double kMostNoise = kWholeTail;
// The twins are few, so a tensor's own spread is averaged with the typical one, which counts as so many twins more.
constexpr double kPriorTwins = 3;
// Noise of a smaller angle stretches a vector by less than 0.2 %.
constexpr double kSmallChord = 0.05;
constexpr size_t kFewTensors = 5;

double one_minus_cosine(double chord) { return chord * chord / 2; }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// log of B's norm divided by A's.
double log_ratio(const TensorPair& pair) { return std::copysign(pair.norm_change(), pair.bb - pair.aa); }

/// The share of half of the angle's square by which noise stretches most tensors: 1 if only B is noisy, −1 if only A
/// is.
double common_stretch(const std::vector<TensorPair>& pairs) {
  std::vector<double> shares;
  for (const TensorPair& pair : pairs)
    if (pair.chord() > kSmallChord) shares.push_back(log_ratio(pair) / one_minus_cosine(pair.chord()));
  return shares.size() < kFewTensors ? 0 : std::clamp(median(std::move(shares)), -1.0, 1.0);
}

/// A tensor's length, without what noise does to all of them.
double own_stretch(const TensorPair& pair, double common) {
  return std::abs(log_ratio(pair) - common * one_minus_cosine(pair.chord()));
}

/// How far rounding turns and stretches one tensor: root mean squares over the twins.
struct Noise {
  double chord = 0, stretch = 0;
};

/// What rounding does to each tensor, by its name.
std::map<std::string, Noise> noise_of(const TwinPairs& twins) {
  std::map<std::string, Noise> all;
  for (const auto& pairs : twins) {
    const double common = common_stretch(pairs);
    for (const TensorPair& pair : pairs) {
      Noise& noise = all[pair.name];
      noise.chord += std::pow(pair.chord(), 2);
      noise.stretch += std::pow(own_stretch(pair, common), 2);
    }
  }
  const auto count = static_cast<double>(twins.size());
  std::vector<double> typical;  // the square of how much a turned tensor is stretched, relative to its angle
  for (auto& [name, noise] : all) {
    noise = {std::sqrt(noise.chord / count), std::sqrt(noise.stretch / count)};
    if (noise.chord > 0) typical.push_back(std::pow(noise.stretch / noise.chord, 2));
  }
  const double share = median(std::move(typical));
  for (auto& [name, noise] : all)
    noise.stretch = std::sqrt((count * std::pow(noise.stretch, 2) + kPriorTwins * share * std::pow(noise.chord, 2)) /
                              (count + kPriorTwins));
  return all;
}

/// How noisy B is, relative to the twins.
double noise_of_b(const std::vector<TensorPair>& b, const std::map<std::string, Noise>& noise) {
  std::vector<double> ratios;
  for (const TensorPair& pair : b)
    if (const auto found = noise.find(pair.name); found != noise.end() && found->second.chord > 0)
      ratios.push_back(pair.chord() / found->second.chord);
  const double relative = median(std::move(ratios));
  // Single tensors of a B that hardly rounds may be as noisy as the twins': Adam makes as much of tiny gradients.
  return relative < 1 ? std::sqrt(relative) : std::min(relative, kMostNoise);
}

Distance direction_of(double chord, double limit) {
  return {one_minus_cosine(chord), one_minus_cosine(std::clamp(limit, kMinChord, kMaxChord))};
}

}  // namespace

WholeAgreement judge_whole(const std::vector<TensorPair>& b, const TwinPairs& twins) {
  const TensorPair of_b = combined(b);
  double chord = 0, mean = 0, stretch = 0;
  for (const auto& pairs : twins) {
    const TensorPair twin = combined(pairs);
    chord += std::pow(twin.chord(), 2) / static_cast<double>(twins.size());
    mean += log_ratio(twin) / static_cast<double>(twins.size());
  }
  for (const auto& pairs : twins)
    stretch += std::pow(log_ratio(combined(pairs)) - mean, 2) / static_cast<double>(twins.size());
  chord = std::sqrt(chord);
  // A change in a random direction stretches a vector of n numbers by 1/√n of what it turns it.
  const double random = chord / std::sqrt(static_cast<double>(std::max<int64_t>(1, of_b.numbers)));
  const double noise = std::max(std::sqrt(stretch), random);
  return {.direction = chord < kNoise ? direction_of(of_b.chord(), kWholeDirectionTail * chord)
                                      : Distance{one_minus_cosine(of_b.chord()), one_minus_cosine(kUnlimitedChord)},
          .norm = {of_b.norm_change(), std::max(kMinNormChange, kWholeTail * noise) +
                                           one_minus_cosine(std::max(chord, std::min(of_b.chord(), kNoise)))}};
}

TensorAgreement judge_tensors(const std::vector<TensorPair>& b, const TwinPairs& twins) {
  const auto noise = noise_of(twins);
  const double level = noise_of_b(b, noise), common = common_stretch(b);
  TensorAgreement result;
  double worst = -1;
  for (const TensorPair& pair : b) {
    const auto found = noise.find(pair.name);
    const Noise own = found == noise.end() ? Noise{} : found->second;
    const bool several = pair.steps > 1;
    const double length_limit = std::max(several ? kMinNormChangeOfSeveral : kMinNormChange,
                                         (several ? kLengthTailOfSeveral : kLengthTail) * level * own.stretch);
    if (own.chord >= kNoise || length_limit >= kAnyLength) {
      ++result.unchecked;
      continue;
    }
    const Distance direction = direction_of(pair.chord(), kDirectionTail * level * own.chord),
                   norm{own_stretch(pair, common), length_limit};
    ++result.tensors;
    if (!direction.within_tolerance() || !norm.within_tolerance()) ++result.beyond;
    const double excess = std::max(std::sqrt(direction.value / direction.tolerance), norm.value / norm.tolerance);
    if (!(excess > worst)) continue;
    worst = excess;
    result.worst = pair.name;
    result.direction = direction;
    result.norm = norm;
    result.norm_ratio = std::exp(log_ratio(pair) - common * one_minus_cosine(pair.chord()));
  }
  return result;
}

double TensorPair::cosine() const {
  if (aa == 0 && bb == 0) return 1;
  return aa > 0 && bb > 0 ? ab / (std::sqrt(aa) * std::sqrt(bb)) : 0;
}

double TensorPair::chord() const { return std::sqrt(std::max(0.0, 2 * (1 - cosine()))); }

double TensorPair::norm_ratio() const { return aa == bb ? 1 : std::sqrt(bb / aa); }

double TensorPair::norm_change() const {
  if (aa == bb) return 0;
  return aa > 0 && bb > 0 ? std::abs(std::log(bb / aa)) / 2 : kZeroNormChange;
}

bool TensorPair::is_finite() const { return std::isfinite(aa) && std::isfinite(bb) && std::isfinite(ab); }

void TensorPair::append(const TensorPair& other) {
  numbers += other.numbers;
  steps += other.steps;
  aa += other.aa;
  bb += other.bb;
  ab += other.ab;
}

TensorPair combined(const std::vector<TensorPair>& pairs) {
  TensorPair all{.steps = 0};
  for (const TensorPair& pair : pairs) all.append(pair);
  return all;
}

}  // namespace trainopt
