// The order in which an epoch visits its samples: a pure function of seed, epoch and position. No index array, no
// state, so resuming in the middle of an epoch costs nothing and neither workers nor ranks can change it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trainopt {

/// A pseudorandom permutation of [0, size) from a key. The "swap-or-not" shuffle (Hoang, Morris, Rogaway, CRYPTO 2012):
/// every round pairs x with K - x and swaps the pair or not by a hashed bit. Unlike a Feistel network it works on any
/// size, also 2 or 3, without walking cycles. Holds a few hundred bytes; a call costs 4·log2(size) + 24 hashes.
class KeyedPermutation {
 public:
  /// `size` ≥ 1.
  KeyedPermutation(int64_t size, uint64_t key);
  int64_t operator()(int64_t position) const;

 private:
  struct Round {
    uint64_t offset, key;
  };
  uint64_t size_;
  std::vector<Round> rounds_;
};

/// One epoch's order.
class EpochOrder {
 public:
  int64_t operator()(int64_t position) const { return permutation_ ? (*permutation_)(position) : position; }

 private:
  friend class Sampler;
  std::optional<KeyedPermutation> permutation_;  // none: index order
};

class Sampler {
 public:
  Sampler(int64_t size, uint64_t seed, bool shuffle);

  /// For many positions of one epoch.
  EpochOrder order(int64_t epoch) const;
  int64_t sample_at(int64_t epoch, int64_t position) const { return order(epoch)(position); }
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
};

}  // namespace trainopt
