// Incremental 64-bit XXH3 (https://xxhash.com). Detects accidental corruption, not tampering.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace trainopt {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void add(const void* data, size_t bytes);
  uint64_t value() const;  ///< the hash of all bytes added so far
  int64_t bytes() const { return bytes_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  int64_t bytes_ = 0;
};

/// Sixteen lowercase hexadecimal digits.
std::string hex(uint64_t value);

}  // namespace trainopt
