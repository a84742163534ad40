#include "base/philox.h"

#include <cmath>
#include <numbers>

namespace trainopt {

PhiloxBlock philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock c{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

namespace {
uint64_t split_mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
}  // namespace

uint64_t mix_key(uint64_t a, uint64_t b) { return split_mix(split_mix(a) ^ b); }

uint64_t mix_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return mix_key(seed, hash);
}

uint32_t PhiloxStream::next_u32() {
  if (left_ == 0) {
    block_ = philox(key_, stream_, counter_++);
    left_ = 4;
  }
  return block_[4 - left_--];
}

double PhiloxStream::next_unit() {
  const uint64_t high = next_u32() >> 5, low = next_u32() >> 6;
  return static_cast<double>(high * 67108864u + low) * 0x1p-53;
}

double PhiloxStream::next_uniform(double low, double high) { return low + (high - low) * next_unit(); }

uint64_t PhiloxStream::next_below(uint64_t bound) {
  const uint64_t tail = (0 - bound) % bound;  // 2^64 mod bound: draws below it would be biased
  while (true) {
    const uint64_t high = next_u32();
    const uint64_t draw = (high << 32) | next_u32();
    if (draw >= tail) return draw % bound;
  }
}

double PhiloxStream::next_normal() {
  const double u = 1.0 - next_unit(), v = next_unit();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace trainopt
