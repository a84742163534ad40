// XXH3 with 64 bits (https://xxhash.com), fed piece by piece. It finds accidents, not forgeries.
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
  uint64_t value() const;  ///< of all that was added so far
  int64_t bytes() const { return bytes_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  int64_t bytes_ = 0;
};

/// Sixteen digits.
std::string hex(uint64_t value);

}  // namespace trainopt
