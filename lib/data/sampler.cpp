#include "data/sampler.h"

#include "base/error.h"
#include "base/philox.h"
#include "data/stream_order.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <mutex>

namespace trainopt {
namespace {

uint64_t scrambled(uint64_t x) {  // the finalizer of MurmurHash3
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

}  // namespace

KeyedPermutation::KeyedPermutation(int64_t size, uint64_t key) : size_(static_cast<uint64_t>(size)) {
  TRAINOPT_CHECK(size >= 1);
  PhiloxStream stream(key);
  rounds_.resize(24 + 4 * static_cast<size_t>(std::bit_width(size_)));
  for (auto& round : rounds_) {
    round.offset = stream.next_below(size_);
    round.key = stream.next_u32();
    round.key = round.key << 32 | stream.next_u32();
  }
}

int64_t KeyedPermutation::operator()(int64_t position) const {
  TRAINOPT_CHECK(position >= 0 && static_cast<uint64_t>(position) < size_);
  auto x = static_cast<uint64_t>(position);
  for (const auto& round : rounds_) {
    const uint64_t partner = round.offset >= x ? round.offset - x : round.offset + size_ - x;
    if (scrambled(std::max(x, partner) ^ round.key) >> 63) x = partner;
  }
  return static_cast<int64_t>(x);
}

Sampler::Sampler(int64_t size, uint64_t seed, bool shuffle)
    : size_(size), seed_(mix_key(seed, "sample order")), shuffle_(shuffle) {
  TRAINOPT_CHECK(size >= 1);
}

/// Threads that load the same epoch share its order. At an epoch's end the next one is already announced.
struct Sampler::Streams {
  StreamLayout layout;
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<const StreamOrder>> orders;  ///< two epochs' orders

  std::shared_ptr<const StreamOrder> order(int64_t epoch, uint64_t key) {
    const std::lock_guard lock(mutex);
    auto& order = orders[epoch];
    if (!order) order = std::make_shared<const StreamOrder>(layout, key);
    const auto wanted = order;
    if (orders.size() > 2) {  // the farther of the others goes
      const auto first = orders.begin(), last = std::prev(orders.end());
      orders.erase(epoch - first->first >= last->first - epoch ? first : last);
    }
    return wanted;
  }
};

Sampler::Sampler(const StreamLayout& layout, uint64_t seed) : Sampler(layout.samples(), seed, true) {
  streams_ = std::make_shared<Streams>();
  streams_->layout = layout;
}

int64_t EpochOrder::operator()(int64_t position) const {
  if (stream_) return (*stream_)(position);
  return permutation_ ? (*permutation_)(position) : position;
}

EpochOrder Sampler::order(int64_t epoch) const {
  EpochOrder order;
  const uint64_t key = mix_key(seed_, static_cast<uint64_t>(epoch));
  if (streams_)
    order.stream_ = streams_->order(epoch, key);
  else if (shuffle_)
    order.permutation_.emplace(size_, key);
  return order;
}

}  // namespace trainopt
