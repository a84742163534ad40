// The order in which an epoch visits its samples: a pure function of seed, epoch and position. It has no index array
// and no state, so resuming in mid-epoch costs nothing, and neither workers nor ranks can change it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace trainopt {

/// A pseudorandom permutation of [0, size) from a key, by the "swap-or-not" shuffle (Hoang, Morris, Rogaway, CRYPTO
/// 2012): each round pairs x with K - x and swaps the two if a hashed bit is set. Unlike a Feistel network it works for
/// any size, including 2 and 3, without cycle walking. Takes a few hundred bytes; a call costs 4·log2(size) + 24
/// hashes.
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

class StreamOrder;
struct StreamLayout;

/// One epoch's order.
class EpochOrder {
 public:
  int64_t operator()(int64_t position) const;

 private:
  friend class Sampler;
  std::optional<KeyedPermutation> permutation_;
  std::shared_ptr<const StreamOrder> stream_;
  // if neither is set: index order
};

class Sampler {
 public:
  Sampler(int64_t size, uint64_t seed, bool shuffle);
  /// Random, but close together (stream_order.h).
  Sampler(const StreamLayout& layout, uint64_t seed);

  /// The order of one epoch, for looking up many positions.
  EpochOrder order(int64_t epoch) const;
  int64_t sample_at(int64_t epoch, int64_t position) const { return order(epoch)(position); }
  int64_t size() const { return size_; }

 private:
  struct Streams;

  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
  std::shared_ptr<Streams> streams_;
};

}  // namespace trainopt
