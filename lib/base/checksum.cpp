#include "base/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace trainopt {

struct Checksum::State {
  XXH3_state_t* xxh3 = XXH3_createState();
  ~State() { XXH3_freeState(xxh3); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  if (state_->xxh3 == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_->xxh3);
}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::add(const void* data, size_t bytes) {
  XXH3_64bits_update(state_->xxh3, data, bytes);
  bytes_ += static_cast<int64_t>(bytes);
}

uint64_t Checksum::value() const { return XXH3_64bits_digest(state_->xxh3); }

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace trainopt
